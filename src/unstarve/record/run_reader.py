"""Run file → `Run`: merge what the processes wrote, and list what is missing."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unstarve.errors import NotARunError, RunFileError
from unstarve.model import (
    BatchFunction,
    Crew,
    DigestedBatch,
    Loader,
    LoopPlace,
    LoopProfile,
    Maker,
    OwnCost,
    Process,
    Run,
    SampleCount,
    Sampled,
    TransformTime,
    Work,
)
from unstarve.model.memory_looks import AllocationSite, ContainerSizes, KeptTensor, MemoryRecord
from unstarve.model.processor import ProcessorCounts
from unstarve.model.stuck import Breakage, Hang, WorkerDeath
from unstarve.record import format as f
from unstarve.record.chunks import Chunk, Scan, check_header
from unstarve.record.events import Packed, epochs_of, events_of, unpacked
from unstarve.record.loader_names import tell_apart
from unstarve.record.metas import LATEST_NS, meta_of
from unstarve.record.profile_meta import profile_of, reads_of
from unstarve.record.run_file import launcher_alive, parts_folder, unwritten

_UNKNOWN_LAUNCH: dict[str, Any] = {"command": [], "kind": "run", "started_at": 0.0}
_MOST_STREAMS = 1 << 17
"""Processes of a run that are read: twenty thousand epochs of six workers each."""
_MOST_LOST = 1000
"""Sentences about losses that are kept for each process."""
_MOST_BREAKAGE = 200
_MOST_SLOW = 10_000
"""Names of slow samples that are kept for each process."""
_MOST_SIZES = 10_000
"""Looks at the containers of a dataset that are kept for each process."""


def read_run(path: Path) -> Run:
    """Read a run file that is finished, cut short or still being written.

    Raises `RunFileError` when there is nothing to read; damage inside the file ends up in `Run.lost`.
    """
    streams: dict[int, ProcessStream] = {}
    lost: list[str] = []
    run_file, *parts = _files(path)
    skipped = _scan(run_file, _content(run_file), streams)
    launch, result = (_newest(streams, name) for name in ("launch", "result"))
    if (
        result is None or result.get("folded") is False
    ):  # else the parts are in the file and about to be removed
        written = [part for part in parts if _size(part) >= f.HEADER.size]
        skipped += sum(_scan(part, _content(part), streams) for part in written)
        if len(written) < len(parts):
            lost.append(unwritten(len(parts) - len(written)))
    profile, reads = (_newest(streams, name) for name in ("profile", "io"))
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
        perf_why_not=next((why for s in streams.values() if (why := s.perf().get("why_not"))), None),
    )


def _files(path: Path) -> list[Path]:
    """The run file itself, then the parts that were not folded into it."""
    try:
        if path.is_dir():
            raise NotARunError(f"{path} is a folder, not a run file")
        parts = parts_folder(path)
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


def _scan(path: Path, data: bytes, streams: dict[int, ProcessStream]) -> int:
    """Read one file's chunks into `streams`; return the number of bytes skipped."""
    scan = Scan(data, check_header(path, data), f.HEADER.size)
    skipped = 0
    for chunk in scan:
        stream = streams.get(chunk.stream)
        if stream is None and len(streams) < _MOST_STREAMS:
            stream = streams[chunk.stream] = ProcessStream()
        if stream is None:
            skipped += f.CHUNK.size + len(chunk.payload)
        else:
            stream.add(chunk)
    return skipped + scan.damaged + len(data) - scan.at


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


class ProcessStream:
    """What one process wrote, collected chunk by chunk."""

    __slots__ = (
        "breakage",
        "crews",
        "digested",
        "draws",
        "invalid",
        "kept",
        "loaders",
        "lost",
        "newest",
        "packed",
        "samples",
        "sizes",
        "slow_files",
        "tensors",
        "usage_before",
    )

    def __init__(self) -> None:
        self.newest: dict[str, dict[str, Any]] = {}
        """The last META of each kind."""
        self.loaders: dict[int, dict[str, Any]] = {}
        self.tensors: dict[int, int | None] = {}
        self.draws: dict[int, bool] = {}
        self.crews: dict[tuple[int, int], Crew] = {}
        """By loader and epoch."""
        self.samples: dict[tuple[int, int], SampleCount] = {}
        """By loader and epoch."""
        self.digested: list[DigestedBatch] = []
        self.slow_files: dict[tuple[int | None, int, int], str] = {}
        """The file of a batch's slowest sample, by loader, iteration and task."""
        self.sizes: list[ContainerSizes] = []
        self.kept: dict[int, list[list[Any]]] = {}
        """Parts of batches that stayed in memory, by loader."""
        self.breakage: dict[str, list[dict[str, Any]]] = {"hang": [], "death": []}
        """What went wrong, by the kind of META."""
        self.lost: list[str] = []
        self.usage_before: dict[str, Any] | None = None
        """Usage of the machine when the process first reported it."""
        self.packed: dict[int, list[Packed]] = {}
        """Rows by kind, not yet unpacked."""
        self.invalid = 0
        """Number of invalid records."""

    def add(self, chunk: Chunk) -> None:
        """Add one chunk; kinds that only a later version knows are ignored."""
        if chunk.kind == f.META:
            try:
                meta = meta_of(chunk.payload)
            except ValueError:
                self.invalid += 1
                return
            if meta is not None:
                self.add_meta(meta)
        elif chunk.kind in f.ROW_KINDS:
            self.packed.setdefault(chunk.kind, []).append((chunk.row_size, chunk.payload))

    def add_meta(self, meta: dict[str, Any]) -> None:
        """Add one META that `meta_of` has checked."""
        name = meta["meta"]
        if name == "loader":
            self.loaders[meta["id"]] = meta
        elif name == "batch":
            self.tensors[meta["loader"]] = meta.get("tensors")
        elif name == "draws":
            self.draws[meta["loader"]] = meta["drew"]
        elif name == "crew":
            self.crews[meta["loader"], meta["epoch"]] = Crew(
                meta["loader"], meta["epoch"], tuple(meta["pids"])
            )
        elif name == "samples":
            told: list[Any] = [meta.get(field) for field in SampleCount._fields]
            self.samples[meta["loader"], meta["epoch"]] = SampleCount(*told)
        elif name == "digests":
            self._add_digests(meta)
        elif name == "slow":
            if len(self.slow_files) < _MOST_SLOW:
                self.slow_files[meta.get("loader"), meta["iteration"], meta["task"]] = meta["file"]
        elif name == "sizes":
            if len(self.sizes) < _MOST_SIZES:
                self.sizes.append(ContainerSizes(meta["at_ns"], meta["sizes"]))
        elif name == "kept":
            self.kept[meta["loader"]] = meta["parts"]
        elif name in self.breakage:
            if len(self.breakage[name]) < _MOST_BREAKAGE:
                self.breakage[name].append({field: v for field, v in meta.items() if field != "meta"})
        elif name == "lost":
            if len(self.lost) < _MOST_LOST:
                self.lost.append(meta["message"])
        else:
            if name == "system" and name not in self.newest:
                self.usage_before = meta.get("usage")
            self.newest[name] = meta

    def _add_digests(self, meta: dict[str, Any]) -> None:
        try:
            rows = base64.b64decode(meta["digests"], validate=True)
        except ValueError:
            self.invalid += 1
            return
        cut = (rows[at : at + f.DIGEST_BYTES] for at in range(0, len(rows), f.DIGEST_BYTES))
        self.digested.append(DigestedBatch(meta["loader"], meta["epoch"], meta["task"], tuple(cut)))

    def process(self) -> Process | None:
        """The process and its events; None if its ``process`` META is missing."""
        who = self.newest.get("process")
        if who is None:
            return None
        device, end = self.newest.get("device", {}), self.newest.get("end", {})
        rank = device.get("rank")
        return Process(
            pid=who["pid"],
            host=who["host"],
            rank=who.get("rank") if rank is None else rank,
            worker=who["worker"],
            device=device.get("name", "cpu"),
            allocated_peak_bytes=device.get("allocated_peak_bytes"),
            reserved_peak_bytes=device.get("reserved_peak_bytes"),
            versions=who["versions"],
            start_ns=who["start_ns"],
            clock_offset_ns=who["offset_ns"],
            loaders=tuple(self._loader(meta) for meta in self.loaders.values()),
            epochs=self._epochs(),
            batches=self._events(f.BATCH),
            end_ns=end.get("end_ns"),
            stopped=end.get("stopped"),
            lost=tuple(self.lost),
            works=self._works(),
            sents=self._events(f.SENT),
            receipts=self._events(f.RECEIVED),
            crews=tuple(self.crews.values()),
            sampled=tuple(Sampled(*found) for found in self.newest.get("sampled", {"found": []})["found"]),
            transforms=tuple(
                TransformTime(*spent) for spent in self.newest.get("transforms", {"spent": []})["spent"]
            ),
            own=self._own(),
            system=self._system(),
            loop=self._loop(),
            draws=self.draws.get(f.NO_LOADER),
            streams={name: v for name, v in self.newest.get("streams", {}).items() if name != "meta"},
            samples=tuple(self.samples.values()),
            digested=tuple(self.digested),
            stalls=self._events(f.STALL),
            readings=self._events(f.GAUGE),
            pulses=self._events(f.PULSE),
            backwards=self._events(f.BACKWARD),
            step_counts=self._counts("step"),
            loading_counts=self._counts("loading"),
            memory=self._memory(),
        )

    def perf(self) -> dict[str, Any]:
        """What the process said about the processor's counters; empty when it said nothing."""
        return self.newest.get("perf", {})

    def _counts(self, part: str) -> ProcessorCounts | None:
        counts = self.perf().get(part)
        return None if counts is None else ProcessorCounts(**counts)

    def _memory(self) -> MemoryRecord:
        allocated = self.newest.get("allocated", {"sites": (), "seconds": 0.0})
        return MemoryRecord(
            looks=self._events(f.MEMORY),
            sizes=tuple(sorted(self.sizes, key=lambda one: one.at_ns)),
            kept=tuple(KeptTensor(loader, *part) for loader, parts in self.kept.items() for part in parts),
            sites=tuple(AllocationSite(*site) for site in allocated["sites"]),
            traced_s=allocated["seconds"],
        )

    def _loader(self, meta: dict[str, Any]) -> Loader:
        number, tensors = meta["id"], self.tensors.get(meta["id"])
        facts = meta.get("dataset") or {}
        if number in self.draws:
            facts = {**facts, "draws": self.draws[number]}
        maker = meta.get("maker")
        return Loader(
            number,
            meta["name"],
            meta["where"],
            meta["kind"],
            meta["config"],
            meta.get("source"),
            tensors,
            meta.get("statement") or "",
            facts,
            None if maker is None else Maker(**maker),
            meta.get("created"),
        )

    def _own(self) -> OwnCost | None:
        said = self.newest.get("own")
        return None if said is None else OwnCost(*(said[name] for name in OwnCost._fields))

    def _system(self) -> dict[str, Any]:
        """The last ``system`` META, with the usage from the first one."""
        said = self.newest.get("system")
        if said is None:
            return {}
        return {name: v for name, v in said.items() if name != "meta"} | {"usage_before": self.usage_before}

    def _loop(self) -> LoopProfile | None:
        said = self.newest.get("loop")
        if said is None or not said.keys() >= {"seconds", "places"}:
            return None
        call = said.get("call")
        return LoopProfile(
            said["seconds"],
            tuple(LoopPlace(*place) for place in said["places"]),
            None if call is None else BatchFunction(*call),
        )

    def _events(self, kind: int) -> tuple[Any, ...]:
        events, invalid = events_of(kind, self.packed.pop(kind, ()))
        self.invalid += invalid
        return tuple(events)

    def _epochs(self) -> tuple[Any, ...]:
        rows = (
            list(unpacked(kind, self.packed.pop(kind, ())))
            for kind in (f.EPOCH_BEGIN, f.EPOCH_END, f.EPOCH_SAMPLER, f.EPOCH_NO_GRAD)
        )
        epochs, invalid = epochs_of(*rows)
        self.invalid += invalid
        return epochs

    def _works(self) -> tuple[Work, ...]:
        helped: Iterator[f.HelpedRow] = unpacked(f.HELPED, self.packed.pop(f.HELPED, ()))
        helped_ns = {
            (None if row.loader == f.NO_LOADER else row.loader, row.iteration, row.task): row.cpu_ns
            for row in helped
        }
        works: tuple[Work, ...] = self._events(f.WORK)
        if not helped_ns and not self.slow_files:
            return works
        files = self.slow_files
        return tuple(
            w._replace(helped_ns=min(helped_ns.get(key, 0), LATEST_NS), slow_file=files.get(key))
            for w in works
            for key in [(w.loader, w.iteration, w.task)]
        )
