"""Run files on a fake clock, like those of a real recording."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sample_rows import BATCH
from unstarve.record import format as f
from unstarve.record.run_file import claim, finish, parts_folder
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
    """A training of equal steps; ``end=False``: it is still being recorded."""
    claim(path, list(command), "run")
    writer = Writer(parts_folder(path) / "7.part")
    writer.meta("process", **_PROCESS, **_CLOCK)
    writer.meta("loader", **_LOADER, config={"num_workers": 0})
    writer.row(f.EPOCH_BEGIN, 0, f.EpochBeginRow(0, 0, 0, 0, begin_ns=MS, ready_ns=MS))
    now = 2 * MS
    for step in range(steps):
        got = now + wait_ms * MS
        row = BATCH._replace(
            position=step,
            size=8,
            nbytes=64,
            ask_ns=now,
            got_ns=got,
            own_ns=0,
            task=-1,
            ready=-1,
            sampler_ns=0,
            wait_cpu_ns=wait_ms * MS,
            wait_queued_ns=0,
            step_cpu_ns=step_ms * MS,
            step_queued_ns=0,
        )
        writer.row(f.BATCH, now, row)
        now = got + step_ms * MS
    if end:
        writer.row(f.EPOCH_END, now, f.EpochEndRow(0, 0, 0, ask_ns=now, end_ns=now, error=b""))
        writer.meta("end", end_ns=now, stopped=None)
    writer.close()
    if end:
        finish(path, 0)
    return path
