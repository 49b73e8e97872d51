"""What a META may say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hostile_runs import chunks_of, run_of_chunks
from run_files import slow_loading_run, write_run
from unstarve.errors import RunFileError
from unstarve.record import format as f
from unstarve.record.chunks import Chunk
from unstarve.record.metas import meta_of
from unstarve.record.process_stream import ProcessStream
from unstarve.record.run_reader import read_run
from unstarve.record.writer import meta_chunk

PROCESS = {
    "pid": 1,
    "host": "h",
    "rank": None,
    "worker": False,
    "versions": {},
    "start_ns": 1,
    "offset_ns": 0,
}
USAGE = {"at_ns": 1, "process_cpu_s": 1.0, "machine_cpu_s": None, "machine_cores": None}


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b'{"meta": 7}',
        b"\xff",
        b'{"meta": "lost", "message": ' + b"[" * 100_000,
        b'{"meta": "lost", "message": ' + b"9" * 5000 + b"}",
        b'{"meta": "end", "end_ns": NaN}',
        b'{"meta": "end", "end_ns": 1e9}',
        b'{"meta": "end", "end_ns": -1}',
        b'{"meta": "end", "end_ns": true}',
        b'{"meta": "device", "name": null}',
        b'{"meta": "crew", "loader": 0, "epoch": 0, "pids": [1, "2"]}',
        b'{"meta": "crew", "loader": 0, "epoch": 0, "pids": ' + json.dumps([1] * 2000).encode() + b"}",
        b'{"meta": "sampled", "found": [["fetch", "f", "f.py", 1, true, true]]}',
        b'{"meta": "sampled", "found": [["fetch", "f", "f.py", 1, true, true, Infinity]]}',
        b'{"meta": "transforms", "spent": [["Resize", -1, 4]]}',
        b'{"meta": "system", "usage": {}}',
        b'{"meta": "system", "filesystems": {"ext4": "many"}}',
        b'{"meta": "system", "cores": 1e999}',
    ],
)
def test_an_invalid_meta_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - nobody sees its message
        meta_of(payload)


@pytest.mark.parametrize("name", PROCESS)
def test_every_field_of_a_process_is_checked(name: str) -> None:
    assert meta_of(json.dumps({"meta": "process"} | PROCESS).encode()) == {"meta": "process"} | PROCESS
    for value in ([], 2**70, -(2**70), float("nan")):
        with pytest.raises(ValueError):  # noqa: PT011 - nobody sees its message
            meta_of(json.dumps({"meta": "process"} | PROCESS | {name: value}).encode())


def test_a_meta_of_a_later_version_is_ignored() -> None:
    assert meta_of(b'{"meta": "weather", "sky": [[]]}') is None
    assert meta_of(b'{"meta": "lost", "message": "x", "because": {}}') == {"meta": "lost", "message": "x"}


def test_invalid_unicode_in_names_is_replaced() -> None:
    assert meta_of(b'{"meta": "lost", "message": "a\\udcffb"}') == {"meta": "lost", "message": "a?b"}


def test_invalid_loader_arguments_are_left_out() -> None:
    said: dict[str, Any] = {
        "num_workers": 10**9,
        "prefetch_factor": 0,
        "batch_size": True,
        "timeout": float("inf"),
    }
    said |= {"drop_last": True, "dataset": "D", "sampler": [1], "in_order": None}
    loader = {
        "meta": "loader",
        "id": 0,
        "name": "train",
        "where": "t.py:1",
        "kind": "DataLoader",
        "config": said,
    }
    meta = meta_of(json.dumps(loader).encode())
    assert meta is not None
    assert meta["config"] == {"timeout": "inf", "drop_last": True, "dataset": "D", "in_order": None}


def test_invalid_records_are_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a.unstarve", slow_loading_run(30))
    chunks = chunks_of(path.read_bytes())
    place, rows = next((i, c) for i, c in enumerate(chunks) if c.kind == f.BATCH and len(c.payload) > 1000)
    layout = f.ROW_KINDS[f.BATCH]
    row = f.BatchRow._make(layout.unpack_from(rows.payload))
    backward = row._replace(ask_ns=row.got_ns + 1, got_ns=row.ask_ns)
    payload = layout.pack(*backward) + rows.payload[layout.size :]
    chunks[place] = rows._replace(payload=payload)
    chunks.insert(place, Chunk(rows.stream, f.META, 0, b'{"meta": "end", "end_ns": "noon"}'))
    path.write_bytes(run_of_chunks(chunks))
    run = read_run(path)
    assert run.damaged
    assert run.lost == ("2 records of a.unstarve are invalid and were skipped",)
    assert len(run.processes[0].batches) == 29


def test_a_file_without_a_valid_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.unstarve"
    path.write_bytes(f.header() + meta_chunk(0, "launch", {"command": 7}) + meta_chunk(1, "process", {}))
    with pytest.raises(RunFileError, match=r"a\.unstarve holds no valid record"):
        read_run(path)


def test_whether_samples_are_random_is_part_of_what_is_known_of_a_dataset() -> None:
    stream = ProcessStream()
    who = {"pid": 1, "host": "here", "worker": False, "versions": {}, "start_ns": 0, "offset_ns": 0}
    stream.add_meta({"meta": "process", **who})
    for number in (0, 1):
        loader = {"name": "train", "where": "t.py:1", "kind": "DataLoader", "config": {}}
        stream.add_meta({"meta": "loader", "id": number, **loader, "dataset": {"length": 3}})
    for drew in (False, True):
        stream.add_meta({"meta": "draws", "loader": 0, "drew": drew})
    process = stream.process()
    assert process is not None
    assert process.draws is None
    assert [dict(one.dataset) for one in process.loaders] == [{"length": 3, "draws": True}, {"length": 3}]
    stream.add_meta({"meta": "draws", "loader": f.NO_LOADER, "drew": False})
    assert stream.process().draws is False  # type: ignore[union-attr]  # it was there before
