"""Run files on a fake clock, as a recording would have left them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unstarve.record import format as f
from unstarve.record.launcher import claim, finish, parts_folder
from unstarve.record.writer import Writer

MS = 1_000_000
_PROCESS: dict[str, Any] = {"pid": 7, "host": "here", "rank": None, "worker": False, "versions": {}}
_CLOCK = {"start_ns": 0, "offset_ns": 0}
_LOADER: dict[str, Any] = {"id": 0, "name": "train", "where": "train.py:3", "kind": "DataLoader"}


def write_run(
    path: Path,
    steps: int = 60,
    wait_ms: int = 6,
    step_ms: int = 4,
    command: Sequence[str] = ("train.py",),
    *,
    end: bool = True,
) -> Path:
    """A training whose every step waits and computes so long; ``end=False``: we are recording it still."""
    claim(path, list(command), "run")
    writer = Writer(parts_folder(path) / "7.part")
    writer.meta("process", **_PROCESS, **_CLOCK)
    writer.meta("loader", **_LOADER, config={"num_workers": 0})
    writer.row(f.EPOCH_BEGIN, 0, (0, 0, 0, 0, MS, MS))
    now = 2 * MS
    for step in range(steps):
        got = now + wait_ms * MS
        inside = (-1, -1, 0, wait_ms * MS, 0, step_ms * MS, 0)
        writer.row(f.BATCH, now, (0, 0, 0, step, 0, 8, 64, now, got, 0, 0, *inside))
        now = got + step_ms * MS
    if end:
        writer.row(f.EPOCH_END, now, (0, 0, 0, now, now, b""))
        writer.meta("end", end_ns=now, stopped=None)
    writer.close()
    if end:
        finish(path, 0)
    return path
