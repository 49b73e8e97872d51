"""What a process says of itself about once a second."""

from __future__ import annotations

from pathlib import Path

import pytest

from unstarve.collect import file_opens as opens
from unstarve.collect.process_pulse import ProcessPulse, resident, shared_memory, storage_bytes
from unstarve.record import format as f


def test_it_is_due_once_a_second_at_most() -> None:
    pulse = ProcessPulse(training=True)
    due = [at_ms for at_ms in range(0, 3000, 100) if pulse.due(10**12 + at_ms * 10**6)]
    assert due == [0, 1000, 2000]


def test_resident_and_shared_memory_are_pages(tmp_path: Path) -> None:
    statm = tmp_path / "statm"
    statm.write_text("41207 9312 4120 1 0 6000 0\n")
    total, shared = resident(bytes(statm))
    assert total * 4120 == shared * 9312
    assert total > 9312


def test_bytes_from_storage_are_found_by_name(tmp_path: Path) -> None:
    io = tmp_path / "io"
    io.write_text("rchar: 6976\nwchar: 0\nsyscr: 10\nsyscw: 0\nread_bytes: 4096\nwrite_bytes: 0\n")
    assert storage_bytes(bytes(io)) == 4096


@pytest.mark.parametrize("content", [None, "", "not a number at all", "7"])
def test_what_cannot_be_read_is_unknown(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "counter"
    if content is not None:
        file.write_text(content)
    assert resident(bytes(file)) == (-1, -1)
    assert storage_bytes(bytes(file)) == -1
    assert shared_memory(str(tmp_path / "nothing")) == (-1, -1)


def test_a_row_has_the_fields_of_the_format_and_workers_leave_the_machines_memory_out(tmp_path: Path) -> None:
    training = ProcessPulse(training=True).row(5, "step", 6, -1)
    worker = ProcessPulse(training=False).row(5, None, 6, 7)
    layout = f.ROW_KINDS[f.PULSE]
    assert len(layout.pack(*training)) == len(layout.pack(*worker)) == layout.size
    assert (f.PULSE_DOING[training[0] - 1], f.PULSE_DOING[worker[0] - 1]) == ("step", "wait")
    assert training[2:5] == (5, 6, -1)
    assert worker[-2:] == (-1, -1)
    assert 0 <= shared_memory(str(tmp_path))[0] <= shared_memory(str(tmp_path))[1]


def test_looking_does_not_count_as_a_file_of_the_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    opens.install()
    monkeypatch.setattr(opens, "count", 0)
    monkeypatch.setattr(opens, "counting", True)
    ProcessPulse(training=True).row(5, "fetch", 6, 7)
    assert opens.count == 0
