"""A profiler's file → a run file, which every verb can read from then on."""

from __future__ import annotations

import dataclasses
import platform
from pathlib import Path
from typing import Any

import numpy as np

from unstarve.errors import ProfileError
from unstarve.importers.capture import Capture
from unstarve.importers.nsys_export import MAGIC, read_nsys_export
from unstarve.importers.summarize import profile_of, training_thread
from unstarve.importers.torch_trace import read_torch_trace
from unstarve.importers.trace_events import Progress
from unstarve.record import format as f
from unstarve.record.run_file import claim, discard, finish, parts_folder
from unstarve.record.writer import Writer

_GZIP = b"\x1f\x8b"
_START_NS = 1_000_000
"""Clock reading at the beginning of the window."""


def import_file(path: Path, run: Path, progress: Progress, *, force: bool = False) -> None:
    """Read a profiler's file and write it as the run file `run`.

    Raises ProfileError when it cannot be read; nothing is written then.
    """
    capture = _read(path, progress)
    low, high = capture.window
    if high <= low:
        raise ProfileError(f"{path} records nothing: no step, operator, kernel or call has a duration")
    profile = dataclasses.asdict(profile_of(capture))
    claim(run, [str(path)], "import", force=force)
    try:
        _write(Writer(parts_folder(run) / f"000{f.PART_SUFFIX}"), capture, profile)
        problem = finish(run, None)
        if problem:
            raise ProfileError(problem)
    except BaseException:  # Ctrl-C must not leave half a run behind either
        discard(run)
        raise


def _read(path: Path, progress: Progress) -> Capture:
    try:
        with path.open("rb") as file:
            head = file.read(len(MAGIC))
    except OSError as error:
        raise ProfileError(f"cannot read {path}: {error.strerror or error}") from error
    if not head:
        raise ProfileError(f"{path} is empty")
    if head == MAGIC:
        return read_nsys_export(path, progress)
    if path.name.endswith((".nsys-rep", ".qdrep")):
        raise ProfileError(f"{path} is nsys's own format; convert it: nsys export --type sqlite {path}")
    if path.name.endswith((".sqlite.gz", ".db.gz")):
        raise ProfileError(f"{path} is compressed; unpack it first: gunzip -k {path}")
    if head.startswith(_GZIP) or head.lstrip()[:1] in (b"{", b"["):
        return read_torch_trace(path, progress)
    raise ProfileError(
        f"{path} is neither an nsys SQLite export nor a torch.profiler trace (JSON, compressed or not)"
    )


def _write(writer: Writer, capture: Capture, profile: dict[str, Any]) -> None:
    """One training process whose waits are the trace's, and the profile beside it."""
    low, high = capture.window
    shift = _START_NS - low
    writer.meta(
        "process",
        pid=1,
        host=platform.node(),
        rank=None,
        worker=False,
        versions={"unstarve": "import", capture.source: capture.tool},
        start_ns=_START_NS,
        offset_ns=0,
    )
    if profile["devices"]:
        writer.meta("device", name="cuda", rank=None)
    writer.meta("profile", **profile)
    waits = _training_waits(capture)
    if len(waits):
        single = "SingleProcess" in capture.names.texts[int(waits[0][2])]
        where = "no workers" if single else "with workers"
        writer.meta("loader", id=0, name="DataLoader", where=where, kind="DataLoader", config={}, source=None)
        begin = int(waits[0][0]) + shift
        writer.row(f.EPOCH_BEGIN, high, f.EpochBeginRow(0, 0, 0, 0, begin, begin))
        for position, (ask, got, _) in enumerate(waits):
            row = f.BatchRow(
                0,
                0,
                0,
                position,
                0,
                -1,
                -1,
                int(ask) + shift,
                int(got) + shift,
                0,
                0,
                -1,
                -1,
                0,
                0,
                -1,
                0,
                -1,
            )
            writer.row(f.BATCH, high, row)
    writer.meta("end", end_ns=high + shift, stopped=None)
    writer.close()


def _training_waits(capture: Capture) -> np.ndarray:
    """Begin, end and name of the training thread's waits inside the window, in the order of time."""
    low, high = capture.window
    column = capture.waits
    chosen = (column.of("thread") == training_thread(capture)) & (column.begin >= low) & (column.end <= high)
    order = np.argsort(column.begin[chosen], kind="stable")
    rows = np.stack([column.begin[chosen], column.end[chosen], column.of("name")[chosen]], axis=1)[order]
    latest = np.r_[np.int64(-1), np.maximum.accumulate(rows[:, 1])[:-1]] if len(rows) else rows[:, :0]
    return rows[rows[:, 0] >= latest] if len(rows) else rows  # a nested loader's waits are inside another's
