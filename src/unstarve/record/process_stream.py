"""What one process wrote → a `Process`."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np

from unstarve.model import (
    Backward,
    Batch,
    BatchFunction,
    Crew,
    DigestedBatch,
    FoldedSteps,
    Loader,
    LoopPlace,
    LoopProfile,
    Maker,
    OwnCost,
    Process,
    SampleCount,
    Sampled,
    TransformTime,
    Work,
)
from unstarve.model.memory_looks import AllocationSite, ContainerSizes, KeptTensor, MemoryRecord
from unstarve.model.processor import ProcessorCounts
from unstarve.model.sample_counts import DIGEST_BYTES
from unstarve.model.thinned import Sketch, Thinned
from unstarve.record import format as f
from unstarve.record.chunks import Chunk
from unstarve.record.events import epochs_of, events_of, unpacked
from unstarve.record.meta_values import LATEST_NS
from unstarve.record.metas import meta_of
from unstarve.record.rows import Packed, rows_of, valid

_MOST_LOST = 1000
"""Sentences about losses that are kept for each process."""
_MOST_BREAKAGE = 200
_MOST_SLOW = 10_000
"""Names of slow samples that are kept for each process."""
_MOST_SIZES = 10_000
"""Looks at the containers of a dataset that are kept for each process."""
_Stretch = tuple[int, int, int, int]
"""Kind of row or measure, loader, epoch or iteration, position or task."""


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
        cut = (rows[at : at + DIGEST_BYTES] for at in range(0, len(rows), DIGEST_BYTES))
        self.digested.append(DigestedBatch(meta["loader"], meta["epoch"], meta["task"], tuple(cut)))

    def process(self) -> Process | None:
        """The process and its events; None if its ``process`` META is missing."""
        who = self.newest.get("process")
        if who is None:
            return None
        device, end = self.newest.get("device", {}), self.newest.get("end", {})
        rank = device.get("rank")
        counts = self._counted()
        batches, backwards = self._batches(counts)
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
            batches=batches,
            end_ns=end.get("end_ns"),
            stopped=end.get("stopped"),
            lost=tuple(self.lost),
            works=self._works(counts),
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
            copies=self._events(f.COPY),
            engines=self._events(f.ENGINES),
            pulses=self._events(f.PULSE),
            backwards=tuple(sorted([*self._events(f.BACKWARD), *backwards], key=lambda one: one.at_ns)),
            meetings=self._events(f.MEETING),
            folded=self.process_windows(),
            attempt=who.get("attempt") or 0,
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

    def process_windows(self) -> FoldedSteps | None:
        packed = self.packed.pop(f.WINDOW, ())
        if not packed:
            return None
        rows = rows_of(f.WINDOW, packed)
        table = rows[valid(f.WINDOW, rows)]
        self.invalid += len(rows) - len(table)
        columns: list[Any] = [table[name] for name in FoldedSteps._fields]  # arrays: millions of numbers
        return FoldedSteps(*columns)

    def _epochs(self) -> tuple[Any, ...]:
        rows = (
            list(unpacked(kind, self.packed.pop(kind, ())))
            for kind in (f.EPOCH_BEGIN, f.EPOCH_END, f.EPOCH_SAMPLER, f.EPOCH_NO_GRAD)
        )
        epochs, invalid = epochs_of(*rows)
        self.invalid += invalid
        return epochs

    def _counted(self) -> dict[_Stretch, f.CountRow]:
        """What thinned rows stand for."""
        rows = rows_of(f.COUNT, self.packed.pop(f.COUNT, ()))
        accepted = map(f.CountRow._make, rows[valid(f.COUNT, rows)].tolist())
        return {(row.kind, row.loader, row.epoch, row.position): row for row in accepted}

    def _batches(self, counts: dict[_Stretch, f.CountRow]) -> tuple[tuple[Batch, ...], list[Backward]]:
        """The batches, and a backward pass for each thinned one that had some."""
        batches: tuple[Batch, ...] = self._events(f.BATCH)
        if not counts:
            known = tuple(batch for batch in batches if batch.thinned is None)
            self.invalid += len(batches) - len(known)
            return known, []
        sketches = self._sketches()
        found, backwards = [], []
        for batch in batches:
            key = batch.loader, batch.epoch, batch.position
            if batch.thinned is None:
                found.append(batch)
            elif (row := counts.get((f.BATCH, *key))) is None:
                self.invalid += 1
            else:
                waits, steps = (sketches.get((of, *key), ()) for of in (f.WAITS, f.STEPS))
                end_ns = max(row.end_ns, batch.got_ns)
                thinned = Thinned(row.number, end_ns, row.steps, row.step_ns, waits, steps)
                found.append(batch._replace(size=None if row.samples < 0 else row.samples, thinned=thinned))
                if row.backwards:
                    backwards.append(Backward(batch.thread, batch.got_ns))
        return tuple(found), backwards

    def _sketches(self) -> dict[_Stretch, Sketch]:
        """By measure, loader, epoch and position."""
        rows = rows_of(f.BUCKET, self.packed.pop(f.BUCKET, ()))
        rows = rows[valid(f.BUCKET, rows)]
        keys = [rows[name] for name in ("measure", "loader", "epoch", "position")]
        rows = rows[np.lexsort([rows["bucket"], *keys])]
        keys = [rows[name] for name in ("measure", "loader", "epoch", "position")]
        changed = np.any([key[1:] != key[:-1] for key in keys], axis=0)
        begins = [0, *(np.flatnonzero(changed) + 1).tolist()] if len(rows) else []
        bars = list(zip(rows["bucket"].tolist(), rows["number"].tolist(), strict=True))
        firsts = zip(*(key[begins].tolist() for key in keys), strict=True)
        ends = [*begins[1:], len(rows)]
        return {
            (measure, loader, epoch, position): tuple(bars[begin:end])
            for (measure, loader, epoch, position), begin, end in zip(firsts, begins, ends, strict=False)
        }

    def _works(self, counts: dict[_Stretch, f.CountRow]) -> tuple[Work, ...]:
        helped: Iterator[f.HelpedRow] = unpacked(f.HELPED, self.packed.pop(f.HELPED, ()))
        helped_ns = {
            (None if row.loader == f.NO_LOADER else row.loader, row.iteration, row.task): row.cpu_ns
            for row in helped
        }
        works: tuple[Work, ...] = self._events(f.WORK)
        if any(not work.weight for work in works):
            works = tuple(_told(work, counts) for work in works)
        ahead = {
            number for number, loader in self.loaders.items() if "prefetch_queue_depth" in loader["config"]
        }
        if ahead:  # DALI's: whether its threads wait for a core or for a file is not known
            works = tuple(w._replace(queued_ns=None) if w.loader in ahead else w for w in works)
        if not helped_ns and not self.slow_files:
            return works
        files = self.slow_files
        return tuple(
            w._replace(helped_ns=min(helped_ns.get(key, 0), LATEST_NS), slow_file=files.get(key))
            for w in works
            for key in [(w.loader, w.iteration, w.task)]
        )


def _told(work: Work, counts: dict[_Stretch, f.CountRow]) -> Work:
    """A thinned work, with what it stands for; without its count, which was damaged, it stands for itself."""
    if work.weight:
        return work
    loader = f.NO_LOADER if work.loader is None else work.loader
    row = counts.get((f.WORK, loader, work.iteration, work.task))
    return (
        work._replace(weight=2)
        if row is None
        else work._replace(weight=max(row.number, 2), samples=row.samples)
    )
