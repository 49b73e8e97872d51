"""A trace is read event by event, however its text is cut into pieces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from unstarve.errors import ProfileError
from unstarve.importers import trace_events
from unstarve.importers.trace_events import TraceFile

EVENTS: list[Any] = [{"name": "é" * n, "ts": n / 7, "args": {"deep": [n, {"}": "]"}]}} for n in range(50)]


def events_of(path: Path) -> list[dict[str, Any]]:
    return list(TraceFile(path, lambda done: None))


@pytest.mark.parametrize("chunk_bytes", [1, 2, 7, 64, 1 << 20])
@pytest.mark.parametrize("indent", [None, 2])
def test_events_survive_any_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int, indent: int | None
) -> None:
    monkeypatch.setattr(trace_events, "_CHUNK_BYTES", chunk_bytes)
    said = {"schemaVersion": 12, "traceEvents": EVENTS, "after": {"x": [1.5]}, "last": 123456789}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(said, indent=indent, ensure_ascii=False))
    trace = TraceFile(path, lambda done: None)
    assert list(trace) == EVENTS
    assert trace.header == {"schemaVersion": 12, "after": {"x": [1.5]}, "last": 123456789}


def test_a_bare_list_and_a_compressed_file_are_traces_too(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(EVENTS).encode()))
    assert events_of(path) == EVENTS


def test_progress_reaches_the_size_of_the_file(tmp_path: Path) -> None:
    path, seen = tmp_path / "trace.json", list[int]()
    path.write_text(json.dumps({"traceEvents": EVENTS}))
    list(TraceFile(path, seen.append))
    assert seen[-1] == path.stat().st_size


@pytest.mark.parametrize(
    "text",
    ["{", "[", "[1", '{"traceEvents"', '{"traceEvents": [', '{"traceEvents": [{}', '{"traceEvents": [{} {}]}',
     '{"traceEvents": 1}', '{"other": []}', "{}", "7", "nonsense", '{"traceEvents": [{"a": }]}',
     "[" * 100_000, '{"a" 1}', "{1: 2}"],
)  # fmt: skip
def test_anything_else_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(ProfileError, match=r"trace\.json is not a whole trace: \w"):
        events_of(path)


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(EVENTS).encode())[:-20])
    with pytest.raises(ProfileError, match="cannot read"):
        events_of(path)
