"""Run file → `Run`: merge what the processes wrote, and say what is missing."""

from __future__ import annotations

import json
import socket
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from unstarve.errors import NewerFormatError, NotARunError, RunFileError
from unstarve.model import (
    Batch,
    Crew,
    Doing,
    Epoch,
    Loader,
    Phase,
    Process,
    Pulse,
    Reading,
    Received,
    Run,
    Sampled,
    Sent,
    Stall,
    TransformTime,
    Work,
)
from unstarve.record import format as f


@dataclass
class Stream:
    """Chunks of one process, as they are found."""

    metas: list[dict[str, Any]] = field(default_factory=list)
    rows: dict[int, list[tuple[Any, ...]]] = field(default_factory=lambda: {kind: [] for kind in f.ROW_KINDS})

    def meta(self, name: str) -> dict[str, Any] | None:
        return next((m for m in reversed(self.metas) if m["meta"] == name), None)


def read_run(path: Path, *, parts: bool = True) -> Run:
    """Read a run file, finished, cut short or still being written.

    ``parts=False`` leaves out what lies beside the run file: of a run that is being recorded, all but what
    its launcher knows, which takes no time. Raises `RunFileError` when there is nothing to read; damage
    inside the file ends up in `Run.lost`.
    """
    streams: dict[int, Stream] = {}
    lost: list[str] = []
    for file in _files(path) if parts else _files(path)[:1]:
        if any(stream.meta("result") for stream in streams.values()):
            break  # the parts are in the run file already; only their removal is yet to come
        _scan(file, streams, lost)
    launch = next((m for s in streams.values() if (m := s.meta("launch"))), None)
    result = next((m for s in streams.values() if (m := s.meta("result"))), None)
    if launch is None:
        lost.append("the beginning of the run file is damaged: command and start time are not known")
        launch = {"command": [], "kind": "run", "started_at": 0.0}
    if result is not None and result.get("error"):
        lost.append(str(result["error"]))
    processes = tuple(p for s in streams.values() if (p := process_of(s)) is not None)
    if any(s.metas and s.meta("process") is None and s.meta("launch") is None for s in streams.values()):
        lost.append("a process left events without saying who it was; they are not counted")
    return Run(
        path=str(path),
        command=tuple(launch["command"]),
        kind=launch["kind"],
        started_at=launch["started_at"],
        processes=tuple(sorted(processes, key=lambda p: (p.rank is None, p.rank or 0, p.start_ns))),
        exit_code=None if result is None else result["exit_code"],
        live=result is None and launcher_alive(launch),
        lost=tuple(lost),
    )


def is_live(path: Path) -> bool:
    """Whether an unstarve is recording into this run right now."""
    try:
        return read_run(path, parts=False).live
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
        unfolded = sorted(parts.iterdir()) if parts.is_dir() else []
        if not path.exists():
            raise RunFileError(f"there is no run file {path}; `unstarve run -o {path} CMD…` makes one")
    except OSError as error:
        raise RunFileError(f"cannot read {path}: {error.strerror or error}") from error
    return [path, *unfolded]


def _scan(path: Path, streams: dict[int, Stream], lost: list[str]) -> None:
    """Read one file's chunks into `streams`."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunFileError(f"cannot read {path}: {error.strerror or error}") from error
    is_part = path.parent.name.endswith(f.PARTS_SUFFIX)
    if is_part and len(data) < f.HEADER.size:
        lost.append("1 process(es) could not write anything (disk full?)")
        return
    check_header(path, data)
    damaged = 0
    for stream, kind, row_size, payload in _chunks(data):
        if stream is None:
            damaged += len(payload)
            continue
        _take(streams.setdefault(stream, Stream()), kind, row_size, payload)
    if damaged:
        lost.append(f"{damaged} bytes of {path.name} are damaged or cut off and were skipped")


def check_header(path: Path, data: bytes) -> None:
    """Raises `NotARunError` or `NewerFormatError` for a file that this version cannot read."""
    if len(data) < f.HEADER.size or not data.startswith(f.MAGIC):
        raise NotARunError(f"{path} is not an unstarve run file")
    version = f.HEADER.unpack_from(data)[1]
    if version > f.VERSION:
        raise NewerFormatError(
            f"{path} was written by a newer unstarve (format {version}, this one reads up to {f.VERSION}); "
            "upgrade with: pip install -U unstarve"
        )


def _chunks(data: bytes) -> Iterator[tuple[int | None, int, int, bytes]]:
    """All whole chunks; damage comes as one ``(None, 0, 0, bytes)`` per gap."""
    at = f.HEADER.size
    while at < len(data):
        found = chunk_at(data, at)
        if found is None:
            gap_end = at
            while found is None and gap_end >= 0:
                gap_end = data.find(f.SYNC, gap_end + 1)
                found = chunk_at(data, gap_end) if gap_end >= 0 else None
            end = gap_end if gap_end >= 0 else len(data)
            yield None, 0, 0, data[at:end]
            at = end
            continue
        stream, kind, row_size, payload = found
        at += f.CHUNK.size + len(payload)
        yield stream, kind, row_size, payload


def chunk_at(data: bytes, at: int) -> tuple[int, int, int, bytes] | None:
    """Stream, kind, row size and payload of the whole chunk that begins there; None where none does."""
    if at + f.CHUNK.size > len(data):
        return None
    sync, stream, kind, row_size, length, crc = f.CHUNK.unpack_from(data, at)
    payload = data[at + f.CHUNK.size : at + f.CHUNK.size + length]
    if sync != f.SYNC or len(payload) != length or zlib.crc32(payload) != crc:
        return None
    return stream, kind, row_size, payload


def _take(stream: Stream, kind: int, row_size: int, payload: bytes) -> None:
    """File one whole chunk; kinds that a later minor version added are passed over."""
    if kind == f.META:
        stream.metas.append(json.loads(payload))
    elif kind in f.ROW_KINDS and row_size >= f.ROW_KINDS[kind].size:
        layout = f.ROW_KINDS[kind]
        stream.rows[kind].extend(layout.unpack_from(payload, at) for at in range(0, len(payload), row_size))


def process_of(stream: Stream) -> Process | None:
    """What a process recorded; None when it has not said who it is."""
    who = stream.meta("process")
    if who is None:
        return None
    device, end = stream.meta("device"), stream.meta("end")
    tensors = {m["loader"]: m["tensors"] for m in stream.metas if m["meta"] == "batch"}
    return Process(
        pid=who["pid"],
        host=who["host"],
        rank=who["rank"] if device is None or device["rank"] is None else device["rank"],
        worker=who["worker"],
        device="cpu" if device is None else device["name"],
        versions=who["versions"],
        start_ns=who["start_ns"],
        clock_offset_ns=who["offset_ns"],
        loaders=tuple(
            Loader(
                m["id"], m["name"], m["where"], m["kind"], m["config"], m.get("source"), tensors.get(m["id"])
            )
            for m in stream.metas
            if m["meta"] == "loader"
        ),
        epochs=epochs_of(stream.rows[f.EPOCH_BEGIN], stream.rows[f.EPOCH_END], stream.rows[f.EPOCH_SAMPLER]),
        batches=_events(stream, f.BATCH),
        end_ns=None if end is None else end["end_ns"],
        stopped=None if end is None else end["stopped"],
        lost=tuple(m["message"] for m in stream.metas if m["meta"] == "lost"),
        works=_works(stream),
        sents=_events(stream, f.SENT),
        receipts=_events(stream, f.RECEIVED),
        crews=tuple(
            Crew(m["loader"], m["epoch"], tuple(m["pids"])) for m in stream.metas if m["meta"] == "crew"
        ),
        sampled=tuple(Sampled(*found) for found in (stream.meta("sampled") or {"found": []})["found"]),
        system=_system(stream),
        transforms=tuple(TransformTime(*t) for t in (stream.meta("transforms") or {"spent": []})["spent"]),
        stalls=_events(stream, f.STALL),
        readings=_events(stream, f.GAUGE),
        pulses=_events(stream, f.PULSE),
    )


def _system(stream: Stream) -> dict[str, Any]:
    """The last that the process said, and how much CPU time had been used when it first did."""
    said = [m for m in stream.metas if m["meta"] == "system"]
    return {**said[-1], "usage_before": said[0].get("usage")} if said else {}


def _batch(row: tuple[Any, ...]) -> Batch:
    loader, flags, epoch, index, thread, size, nbytes, ask, got, own_ns, block, *inside = row
    task, ready, sampler_ns, wait_cpu_ns, wait_queued_ns, step_cpu_ns, step_queued_ns = inside
    return Batch(
        loader,
        epoch,
        index,
        ask,
        got,
        _known(size),
        _known(nbytes),
        bool(flags & f.NESTED),
        thread,
        own_ns,
        Phase.REPLAY if flags & f.REPLAY else Phase.REAL,
        block,
        bool(flags & f.SETTLING),
        _known(task),
        _known(ready),
        sampler_ns,
        wait_cpu_ns,
        _known(wait_queued_ns),
        step_cpu_ns,
        _known(step_queued_ns),
    )


def _work(row: tuple[Any, ...]) -> Work:
    loader, flags, iteration, task, samples, *rest = row
    received, begin, collate, done, cpu, system, queued, asked, storage, delay, faults, switches, *rest = rest
    collate_cpu, collate_system, collate_queued, slow_index, slow_ns, opens = rest
    return Work(
        None if loader == f.NO_LOADER else loader,
        iteration,
        task,
        samples,
        received,
        begin,
        collate,
        done,
        cpu,
        system,
        _known(queued),
        _known(asked),
        _known(storage),
        _known(delay),
        faults,
        switches,
        collate_cpu,
        collate_system,
        _known(collate_queued),
        _known(slow_index),
        slow_ns,
        opens,
        bool(flags & f.FAILED),
    )


def _reading(row: tuple[Any, ...]) -> Reading:
    device, flags, at, percent, used, total = row
    utilization = None if percent < 0 else percent / 100
    return Reading(device, at, utilization, _known(used), _known(total), bool(flags & f.SHARED))


def _pulse(row: tuple[Any, ...]) -> Pulse:
    doing, _, at, *counters = row
    known = 0 < doing <= len(f.PULSE_DOING)
    return Pulse(at, Doing(f.PULSE_DOING[doing - 1]) if known else None, *map(_known, counters))


EVENT_OF: dict[int, Callable[[tuple[Any, ...]], Any]] = {
    f.BATCH: _batch,
    f.WORK: _work,
    f.SENT: lambda row: Sent(*row),
    f.RECEIVED: lambda row: Received(row[0], *row[2:]),
    f.STALL: lambda row: Stall(row[0], *row[2:5], *row[6:]),
    f.GAUGE: _reading,
    f.PULSE: _pulse,
}
"""What a row of each kind becomes; those of epochs take two, see `epochs_of`."""


def _works(stream: Stream) -> tuple[Work, ...]:
    helped_ns = {
        (None if loader == f.NO_LOADER else loader, iteration, task): cpu_ns
        for task, iteration, cpu_ns, loader in stream.rows[f.HELPED]
    }
    works: tuple[Work, ...] = _events(stream, f.WORK)
    if not helped_ns:
        return works
    return tuple(w._replace(helped_ns=helped_ns.get((w.loader, w.iteration, w.task), 0)) for w in works)


def _events(stream: Stream, kind: int) -> tuple[Any, ...]:
    return tuple(EVENT_OF[kind](row) for row in stream.rows[kind])


def _known(value: int) -> int | None:
    """Counters that could not be read are written as −1."""
    return None if value < 0 else value


def epochs_of(
    begins: Iterable[tuple[Any, ...]],
    ends: Sequence[tuple[Any, ...]],
    sampled: Iterable[tuple[Any, ...]] = (),
) -> tuple[Epoch, ...]:
    """Epochs from the rows of their begins and ends, and of what the sampler took at their begin."""
    sampler_ns = {(row[0], row[2]): row[3] for row in sampled}
    ended = {(row[0], row[2]): row for row in reversed(ends)}  # the first end counts
    epochs = []
    for loader, flags, epoch, thread, begin, ready in begins:
        end = ended.get((loader, epoch))
        epochs.append(
            Epoch(
                loader,
                epoch,
                begin,
                ready,
                thread,
                bool(flags & f.NESTED),
                None if end is None else end[3],
                None if end is None else end[4],
                None if end is None else end[5].rstrip(b"\0").decode(errors="replace") or None,
                sampler_ns.get((loader, epoch), 0),
            )
        )
    return tuple(epochs)


def launcher_alive(launch: dict[str, Any]) -> bool:
    """Whether the unstarve that wrote this ``launch`` still runs, on this machine."""
    if launch.get("host") != socket.gethostname():
        return False
    try:
        launcher = psutil.Process(launch["pid"])
        # A younger process has been given the number of one that is gone.
        return (
            launcher.create_time() <= launch["started_at"] + 1 and launcher.status() != psutil.STATUS_ZOMBIE
        )
    except psutil.NoSuchProcess:
        return False
