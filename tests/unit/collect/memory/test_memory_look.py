"""What a process says of its memory every few seconds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unstarve.collect import file_opens as opens
from unstarve.collect.memory.memory_look import (
    memory_pressure,
    memory_row,
    open_descriptors,
    refaulted_bytes,
    rollup,
)
from unstarve.collect.memory.memory_watch import pause_ns
from unstarve.record import format as f

ROLLUP = """558611d5d000-7fff75d30000 ---p 00000000 00:00 0                          [rollup]
Rss:                1760 kB
Pss:                 332 kB
Private_Clean:        56 kB
Private_Dirty:       112 kB
Anonymous:           110 kB
"""


def test_a_rollup_is_bytes_by_name(tmp_path: Path) -> None:
    file = tmp_path / "rollup"
    file.write_text(ROLLUP)
    assert rollup(bytes(file))[b"Pss"] == 332 * 1024
    assert rollup(bytes(file))[b"Anonymous"] == 110 * 1024
    assert rollup(bytes(tmp_path / "nothing")) == {}


def test_pressure_and_refaults_are_found(tmp_path: Path) -> None:
    pressure, vmstat = tmp_path / "pressure", tmp_path / "vmstat"
    pressure.write_text("some avg10=12.34 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00\n")
    vmstat.write_text("nr_free_pages 5\nworkingset_refault_anon 1\nworkingset_refault_file 30\n")
    assert memory_pressure((bytes(tmp_path / "nothing"), bytes(pressure))) == 1234
    assert refaulted_bytes(bytes(vmstat)) == 30 * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("content", [None, "", "some nonsense"])
def test_what_cannot_be_read_is_unknown(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "counter"
    if content is not None:
        file.write_text(content)
    assert memory_pressure((bytes(file),)) == -1
    assert refaulted_bytes(bytes(file)) < 0
    assert open_descriptors(bytes(tmp_path / "nothing")) == -1


def test_open_files_are_counted(tmp_path: Path) -> None:
    before = open_descriptors()
    with (tmp_path / "a").open("w"), (tmp_path / "b").open("w"):
        assert open_descriptors() == before + 2


def test_a_row_fits_the_format_and_does_not_count_as_a_file_of_the_dataset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opens.install()
    monkeypatch.setattr(opens, "count", 0)
    monkeypatch.setattr(opens, "counting", True)
    training, worker = memory_row(5, training=True), memory_row(5, training=False)
    assert opens.count == 0
    layout = f.ROW_KINDS[f.MEMORY]
    assert len(layout.pack(*training)) == len(layout.pack(*worker)) == layout.size
    assert training.anonymous_bytes > 0
    assert 0 < training.uss_bytes <= training.pss_bytes
    assert worker.shm_bytes == worker.pressure == worker.refaulted_bytes == -1


def test_looks_are_paced_by_their_cost_and_become_rarer() -> None:
    ms, s = 10**6, 10**9
    assert pause_ns(0, 3 * ms, 0.001) == 3 * s
    assert pause_ns(0, 0, 0.001) == s // 5
    assert pause_ns(6400 * s, 3 * ms, 0.001) == 100 * s
