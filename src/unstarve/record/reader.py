"""Run file → `Run`: merge what the processes wrote, and say what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unstarve.errors import NewerFormatError, NotARunError, RunFileError
from unstarve.model import Run
from unstarve.record import format as f
from unstarve.record.chunks import Scan
from unstarve.record.ends import launch_of, launcher_alive, result_of
from unstarve.record.streams import MOST_STREAMS, Stream

_UNKNOWN_LAUNCH: dict[str, Any] = {"command": [], "kind": "run", "started_at": 0.0}


def read_run(path: Path) -> Run:
    """Read a run file, finished, cut short or still being written.

    Raises `RunFileError` when there is nothing to read; damage inside the file ends up in `Run.lost`.
    """
    streams: dict[int, Stream] = {}
    lost: list[str] = []
    run_file, *parts = _files(path)
    skipped = _scan(run_file, _content(run_file), streams)
    launch, result = (_of_launcher(streams, name) for name in ("launch", "result"))
    if result is None or result.get("folded") is False:  # else only their removal is yet to come
        written = [part for part in parts if _size(part) >= f.HEADER.size]
        skipped += sum(_scan(part, _content(part), streams) for part in written)
        if len(written) < len(parts):
            lost.append(f"{len(parts) - len(written)} process(es) could not write anything (disk full?)")
    if skipped:
        lost.append(f"{skipped} bytes of {path.name} are damaged or cut off and were skipped")
    processes = [p for s in streams.values() if (p := s.process()) is not None]
    nonsense = sum(stream.nonsense for stream in streams.values())
    if launch is None and not processes and nonsense:
        raise RunFileError(f"nothing in {path} makes sense: it is damaged, or not written by unstarve")
    if launch is None:
        lost.append("the beginning of the run file is damaged: command and start time are not known")
        launch = _UNKNOWN_LAUNCH
    if result is not None and result.get("error"):
        lost.append(result["error"])
    lost.extend(_of_the_nameless(streams))
    if nonsense:
        lost.append(f"{nonsense} records of {path.name} make no sense and were skipped")
    return Run(
        path=str(path),
        command=tuple(launch["command"]),
        kind=launch["kind"],
        started_at=launch["started_at"],
        processes=tuple(sorted(processes, key=lambda p: (p.rank is None, p.rank or 0, p.start_ns))),
        exit_code=None if result is None else result.get("exit_code"),
        live=result is None and launcher_alive(launch),
        lost=tuple(lost),
        damaged=bool(skipped or nonsense),
    )


def is_live(path: Path) -> bool:
    """Whether an unstarve is recording into this run right now; takes no time."""
    try:
        launch = launch_of(path)
        return launch is not None and launcher_alive(launch) and result_of(path) is None
    except RunFileError:
        return False


def is_run_file(path: Path) -> bool:
    """Whether unstarve wrote this file."""
    with path.open("rb") as file:
        return file.read(len(f.MAGIC)) == f.MAGIC


def _files(path: Path) -> list[Path]:
    """The run file itself, then the parts that were not folded into it."""
    try:
        if path.is_dir():
            raise NotARunError(f"{path} is a folder, not a run file")
        parts = path.with_name(path.name + f.PARTS_SUFFIX)
        unfolded = sorted(parts.glob(f"*{f.PART_SUFFIX}")) if parts.is_dir() else []
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


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunFileError(f"cannot read {path}: {error.strerror or error}") from error


def _scan(path: Path, data: bytes, streams: dict[int, Stream]) -> int:
    """Read one file's chunks into `streams`; how many bytes had to be skipped."""
    scan = Scan(data, check_header(path, data), f.HEADER.size)
    skipped = 0
    for chunk in scan:
        stream = streams.get(chunk.stream)
        if stream is None and len(streams) < MOST_STREAMS:
            stream = streams[chunk.stream] = Stream()
        if stream is None:
            skipped += f.CHUNK.size + len(chunk.payload)
        else:
            stream.take(chunk)
    return skipped + scan.damaged + len(data) - scan.at


def _of_launcher(streams: dict[int, Stream], name: str) -> dict[str, Any] | None:
    return next((stream.newest[name] for stream in streams.values() if name in stream.newest), None)


def _of_the_nameless(streams: dict[int, Stream]) -> Iterator[str]:
    """What is lost with those who have not said who they are."""
    nameless = [s for s in streams.values() if not s.newest.keys() & {"process", "launch", "result"}]
    if any(stream.packed or stream.loaders for stream in nameless):
        yield "a process left events without saying who it was; they are not counted"
    for stream in nameless:
        yield from stream.lost


def check_header(path: Path, data: bytes) -> int:
    """The version of a file; raises `NotARunError` or `NewerFormatError` when it cannot be read."""
    if len(data) < f.HEADER.size or not data.startswith(f.MAGIC):
        raise NotARunError(f"{path} is not an unstarve run file")
    version: int = f.HEADER.unpack_from(data)[1]
    if version > f.VERSION:
        raise NewerFormatError(
            f"{path} was written by a newer unstarve (format {version}, this one reads up to {f.VERSION}); "
            "upgrade with: pip install -U unstarve"
        )
    return version
