"""Run file → `Run`: merge what the processes wrote, and list what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unstarve.errors import NotARunError, RunFileError
from unstarve.model import MachineTimes, Run
from unstarve.model.stuck import Breakage, Hang, WorkerDeath
from unstarve.record import format as f
from unstarve.record.chunks import Chunk, FileScan, check_header
from unstarve.record.loader_names import tell_apart
from unstarve.record.process_stream import ProcessStream
from unstarve.record.profile_meta import profile_of, reads_of
from unstarve.record.run_file import launcher_alive, parts_folder, parts_of, unwritten
from unstarve.record.stretches import Detail
from unstarve.record.thinning import thin

_UNKNOWN_LAUNCH: dict[str, Any] = {"command": [], "kind": "run", "started_at": 0.0}
_HELD_BYTES = 1 << 26
"""Rows held in memory before they are thinned: a training process comes before its workers in most files."""
_MOST_STREAMS = 1 << 17
"""Processes of a run that are read: twenty thousand epochs of six workers each."""


def read_run(path: Path, detail: Detail | None = None) -> Run:
    """Read a run file that is finished, cut short or still being written.

    `detail` limits what is kept step by step of each training process; the rest comes as batches that stand
    for many, see `Batch.thinned`. Raises `RunFileError` when there is nothing to read; damage inside the file
    ends up in `Run.lost`.
    """
    lost: list[str] = []
    held = _Held(detail)
    streams = held.streams
    run_file, *parts = files_of_run(path)
    skipped = _scan(run_file, held)
    launch, result = (_newest(streams, name) for name in ("launch", "result"))
    if (
        result is None or result.get("folded") is False
    ):  # else the parts are in the file and about to be removed
        written = [part for part in parts if _size(part) >= f.HEADER.size]
        skipped += sum(_scan(part, held) for part in written)
        if len(written) < len(parts):
            lost.append(unwritten(len(parts) - len(written)))
    thin(streams.values(), detail)
    profile, reads, times = (_newest(streams, name) for name in ("profile", "io", "machine"))
    if skipped:
        lost.append(f"{skipped} bytes of {path.name} are damaged or cut off and were skipped")
    processes = [p for s in streams.values() if (p := s.process()) is not None]
    invalid = sum(stream.invalid for stream in streams.values())
    if launch is None and not processes and invalid:
        raise RunFileError(f"{path} holds no valid record: it is damaged, or not written by unstarve")
    if launch is None:
        lost.append("the beginning of the run file is damaged: the command and its start time are unknown")
        launch = _UNKNOWN_LAUNCH
    if result is not None and result.get("error"):
        lost.append(result["error"])
    lost.extend(_lost_by_unknown(streams))
    if invalid:
        lost.append(f"{invalid} records of {path.name} are invalid and were skipped")
    return Run(
        path=str(path),
        command=tuple(launch["command"]),
        kind=launch["kind"],
        started_at=launch["started_at"],
        processes=tuple(
            sorted(tell_apart(processes), key=lambda p: (p.rank is None, p.rank or 0, p.start_ns))
        ),
        exit_code=None if result is None else result.get("exit_code"),
        live=result is None and launcher_alive(launch),
        lost=tuple(lost),
        damaged=bool(skipped or invalid),
        profile=None if profile is None else profile_of(profile),
        failure=None if result is None else result.get("failure"),
        limit=None if result is None else result.get("limit"),
        reads=None if reads is None else reads_of(reads),
        breakage=Breakage(
            tuple(Hang(**one) for one in _broken(streams, "hang")),
            tuple(WorkerDeath(**one) for one in _broken(streams, "death")),
        ),
        machine=None if times is None else MachineTimes(**{k: v for k, v in times.items() if k != "meta"}),
        perf_why_not=next((why for s in streams.values() if (why := s.perf().get("why_not"))), None),
    )


def files_of_run(path: Path) -> list[Path]:
    """The run file itself, then the parts that were not folded into it."""
    try:
        if path.is_dir():
            raise NotARunError(f"{path} is a folder, not a run file")
        parts = parts_folder(path)
        unfolded = parts_of(parts) if parts.is_dir() else []
        if not path.exists():
            raise RunFileError(f"there is no run file {path}; `unstarve run -o {path} CMD…` makes one")
    except OSError as error:
        raise RunFileError(f"cannot read {path}: {error.strerror or error}") from error
    return [path, *unfolded]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise RunFileError(f"cannot read {path}: {error.strerror or error}") from error


class _Held:
    """What has been read, thinned whenever it becomes much."""

    def __init__(self, detail: Detail | None) -> None:
        self.streams: dict[int, ProcessStream] = {}
        self._detail = detail
        self._bytes = 0

    def add(self, chunk: Chunk) -> bool:
        """Whether there is room for what this process says."""
        stream = self.streams.get(chunk.stream)
        if stream is None and len(self.streams) < _MOST_STREAMS:
            stream = self.streams[chunk.stream] = ProcessStream()
        if stream is None:
            return False
        stream.add(chunk)
        self._bytes += len(chunk.payload)
        if self._bytes > _HELD_BYTES:
            self._bytes = 0
            thin(self.streams.values(), self._detail)
        return True


def _scan(path: Path, held: _Held) -> int:
    """Read one file's chunks; return the number of bytes skipped."""
    try:
        with path.open("rb") as file:
            head = file.read(f.HEADER.size)
            version = check_header(path, head)
            scan = FileScan(file, version)
            skipped = sum(f.CHUNK.size + len(chunk.payload) for chunk in scan if not held.add(chunk))
    except OSError as error:
        raise RunFileError(f"cannot read {path}: {error.strerror or error}") from error
    return skipped + scan.damaged + scan.left


def _newest(streams: dict[int, ProcessStream], name: str) -> dict[str, Any] | None:
    return next((stream.newest[name] for stream in streams.values() if name in stream.newest), None)


def _broken(streams: dict[int, ProcessStream], name: str) -> list[dict[str, Any]]:
    return [one for stream in streams.values() for one in stream.breakage[name]]


def _lost_by_unknown(streams: dict[int, ProcessStream]) -> Iterator[str]:
    """The losses of processes whose ``process`` META is missing."""
    unknown = [s for s in streams.values() if not s.newest.keys() & {"process", "launch", "result"}]
    if any(stream.packed or stream.loaders for stream in unknown):
        yield "the events of a process that did not identify itself are not counted"
    for stream in unknown:
        yield from stream.lost
