"""Plan → results: all entries of a part take turns, so that whatever slows the machine slows them all."""

from __future__ import annotations

import gc
import os
import platform
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import psutil
import torch

from unstarve.benchmark.bench_data import cached_share
from unstarve.benchmark.bench_plan import BenchEntry, BenchPlan, Missing, PartPlan
from unstarve.benchmark.file_parts import FROM_FILES
from unstarve.benchmark.image_parts import IMAGES
from unstarve.benchmark.measure_ways import (
    cpu_per_batch,
    extra_memory,
    median_ratio,
    same,
    seed_all,
    summary,
    time_per_batch,
)
from unstarve.benchmark.memory_parts import IN_MEMORY
from unstarve.benchmark.worker_parts import COMPUTING, HANDOFF, WAITING
from unstarve.errors import UsageError
from unstarve.intervals import turn_order
from unstarve.model import Bar, Benchmark, Checked, Extra, Kind, Part, Promise, Way

PARTS: tuple[PartPlan, ...] = (*IN_MEMORY, *FROM_FILES, *HANDOFF, *WAITING, *IMAGES, *COMPUTING)
"""All parts, by letter."""
_PACKAGES = ("unstarve", "torchvision", "pillow")


class BenchWatch(Protocol):
    """Told about the progress of a benchmark."""

    def begins(self, what: str, part: int, parts: int) -> None:
        """A measurement begins, in part number `part` of `parts`."""

    def ended(self, part: Part) -> None:
        """A part is complete or was interrupted."""


def chosen(words: Iterable[str], parts: Sequence[PartPlan] = PARTS) -> tuple[PartPlan, ...]:
    """Return the parts with these letters or names, in their own order; all parts for no words."""
    wanted = tuple(words)
    known = dict.fromkeys(word for part in parts for word in (part.letter, part.name))
    for word in wanted:
        if word not in known:
            raise UsageError(f"unknown part {word!r}; choose from {', '.join(known)}")
    return tuple(part for part in parts if not wanted or part.letter in wanted or part.name in wanted)


def run(
    plan: BenchPlan, watch: BenchWatch, parts: Sequence[PartPlan] = PARTS, packages: Iterable[str] = _PACKAGES
) -> Benchmark:
    """Measure those of `parts` that the plan names; on Ctrl-C, return the results so far.

    The versions of `packages` become part of the result.
    """
    parts = chosen(plan.parts, parts)
    began, started_at = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    done: list[Part] = []
    interrupted = False
    with tempfile.TemporaryDirectory(prefix="unstarve-bench-", dir=plan.folder) as folder:
        for number, part in enumerate(parts, start=1):
            say = partial(watch.begins, part=number, parts=len(parts))
            rounds = Rounds(part, plan, Path(folder), say)
            try:
                rounds.run()
            except KeyboardInterrupt:
                interrupted = True
            done.append(rounds.result())
            watch.ended(done[-1])
            if interrupted:
                break
    return Benchmark(
        tuple(done), plan.seeds, plan.quick, interrupted, started_at, time.perf_counter() - began,
        machine={
            "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            "memory_bytes": psutil.virtual_memory().total,
            "system": platform.platform(),
        },
        versions={"python": platform.python_version(), "torch": torch.__version__} | _installed(packages),
    )  # fmt: skip


def _installed(packages: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


Say = Callable[[str], None]

_QUICK_PAIRS = 2
_WARM_UP = 3
"""Batches of each entry before the first round: code is imported, memory is allocated."""


@dataclass
class WayMeasurements:
    """The measurements of one entry so far."""

    loader: Any = None
    engine: str | None = None
    missing: str | None = None
    batch_s: list[float] = field(default_factory=list)
    stock_s: list[float] = field(default_factory=list)
    """Stock's time to compare each of `batch_s` with."""
    cpu_s: float | None = None
    extra: Extra | None = None
    cached_share: float | None = None


class Rounds:
    """Measures one part; `result` may be called at any time and returns what is known by then."""

    def __init__(self, part: PartPlan, plan: BenchPlan, folder: Path, say: Say) -> None:
        self._part = part
        self._plan = plan
        self._folder = folder
        self._say = say
        self._data: Any = None
        self._measured = {entry: WayMeasurements() for entry in part.entries}

    def run(self) -> None:
        """Measure everything; an entry that fails is left out, with its reason."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of an entry have no place in the table
            self._say(f"{self._part.name}: creating the data")
            try:
                self._data = self._part.prepare(self._plan.sizes, self._folder)
            except Missing as why:
                for measured in self._measured.values():
                    measured.missing = str(why)
                return
            for entry in self._part.entries:
                self._guarded(entry, self._make)
            for number, seed in enumerate(self._plan.seeds, start=1):
                self._round(seed, f"round {number} of {len(self._plan.seeds)}")
            if self._part.batch_samples is not None:
                for entry in self._part.entries:
                    self._guarded(entry, self._cost)
            if self._plan.memory and self._part.memory:
                for entry in self._part.entries:
                    self._guarded(entry, self._remember)

    def _round(self, seed: int, called: str) -> None:
        for entry in self._part.entries:
            self._say(f"{self._part.name}, {called}: {entry.name}")
            self._guarded(entry, partial(self._timed, seed=seed))

    def _timed(self, entry: BenchEntry, seed: int) -> None:
        stock, measured = self._part.entries[0], self._measured[entry]
        if self._measured[stock].missing is not None:
            raise Missing("stock was not measured")
        for base_s, batch_s in self._pairs(stock, entry, seed):
            measured.batch_s.append(batch_s)
            measured.stock_s.append(base_s)
        if entry.read_directly is not None:
            measured.cached_share = cached_share(entry.read_directly(self._data))

    def _pairs(self, stock: BenchEntry, entry: BenchEntry, seed: int) -> Iterator[tuple[float, float]]:
        """Yield stock's time and this entry's; several of each if the part is measured in pairs."""
        if entry is stock:
            took_s = self._time(stock, seed)
            yield took_s, took_s
        elif not self._part.pairs:
            yield self._measured[stock].batch_s[-1], self._time(entry, seed)
        else:
            for turn in range(_QUICK_PAIRS if self._plan.quick else self._part.pairs):
                both_s = {one: self._time(one, seed) for one in turn_order((stock, entry), turn)}
                yield both_s[stock], both_s[entry]

    def _time(self, entry: BenchEntry, seed: int) -> float:
        if self._part.before is not None:
            self._part.before(self._data)
        gc.collect()
        seed_all(seed)
        # A cold cache is cold only once: a second epoch would find what the first one read.
        once = self._part.before is not None or self._part.pairs > 0
        least_s = 0.0 if once else self._plan.sizes.least_s
        loader = entry.make(self._data) if entry.afresh else self._measured[entry].loader
        return time_per_batch(loader, least_s=least_s, skip=self._part.skip)

    def _make(self, entry: BenchEntry) -> None:
        self._say(f"{self._part.name}: creating {entry.name}")
        measured = self._measured[entry]
        made = entry.make(self._data)
        for _ in islice(made, _WARM_UP):
            pass
        if entry.kind is Kind.OURS and entry.same_batches:
            firsts = []
            for loader in (self._measured[self._part.entries[0]].loader, made):
                seed_all(self._plan.seeds[0])
                firsts.append(next(islice(loader, 1)))
            if not same(*firsts):
                raise Missing("its batches differ from stock's")
        measured.engine = getattr(made, "engine", None)
        measured.loader = None if entry.afresh else made

    def _cost(self, entry: BenchEntry) -> None:
        self._say(f"{self._part.name}: CPU time of {entry.name}")
        self._measured[entry].cpu_s = cpu_per_batch(self._measured[entry].loader)

    def _remember(self, entry: BenchEntry) -> None:
        if entry.kind is not Kind.LIMIT:
            self._say(f"{self._part.name}: memory of {entry.name}")
            self._measured[entry].extra = extra_memory(self._part, entry.name, self._plan.sizes, self._folder)

    def _guarded(self, entry: BenchEntry, do: Callable[[BenchEntry], None]) -> None:
        measured = self._measured[entry]
        if measured.missing is not None:
            return
        try:
            do(entry)
        except Missing as why:
            measured.missing = str(why)
        except Exception as error:  # one entry that fails must not stop the others
            measured.missing = f"failed: {type(error).__name__}: {error}"

    def result(self) -> Part:
        """Return what is known of the part."""
        part = self._part
        ways = tuple(self._way(entry, measured) for entry, measured in self._measured.items())
        sizes = self._plan.sizes
        samples = None if part.batch_samples is None else part.batch_samples(sizes)
        return Part(part.letter, part.name, part.title(sizes), ways, samples)

    def _way(self, entry: BenchEntry, measured: WayMeasurements) -> Way:
        if measured.missing is not None or not measured.batch_s:
            return Way(entry.name, entry.kind, missing=measured.missing or "not measured yet")
        mean_s, deviation_s = summary(tuple(measured.batch_s))
        way = Way(
            entry.name, entry.kind,
            batch_s=tuple(measured.batch_s), mean_s=mean_s, deviation_s=deviation_s,
            speedup=median_ratio(measured.stock_s, measured.batch_s),
            engine=measured.engine, cpu_s=measured.cpu_s,
            extra=measured.extra, cached_share=measured.cached_share,
            rival=entry.rival, over_rival=self._over_rival(entry, measured),
        )  # fmt: skip
        return replace(way, checked=tuple(self._checked(bar, entry, way) for bar in entry.bars))

    def _checked(self, bar: Bar, entry: BenchEntry, way: Way) -> Checked:
        measured = {
            Promise.SPEEDUP: way.speedup,
            Promise.OVER_LIMIT: self._over_limit(entry, way),
            Promise.EXTRA_BYTES: None if way.extra is None else way.extra.besides_data_bytes,
            Promise.CACHED_SHARE: way.cached_share,
        }[bar.promise]
        if measured is None or not self._plan.judged:
            return Checked(bar, measured, None)
        met = measured >= bar.limit if bar.promise is Promise.SPEEDUP else measured <= bar.limit
        return Checked(bar, measured, met)

    def _over_rival(self, entry: BenchEntry, measured: WayMeasurements) -> float | None:
        for other, its in self._measured.items():
            if other.name == entry.rival and its.missing is None:
                if other is self._part.entries[0]:
                    return median_ratio(measured.stock_s, measured.batch_s)
                rounds = min(len(its.batch_s), len(measured.batch_s))
                return median_ratio(its.batch_s[:rounds], measured.batch_s[:rounds])
        return None

    def _over_limit(self, entry: BenchEntry, way: Way) -> float | None:
        """How much slower than its limit, as a share of the limit: the median over the rounds of both."""
        for other, measured in self._measured.items():
            if other.kind is Kind.LIMIT and entry.limit in (None, other.name) and measured.batch_s:
                pairs = zip(way.batch_s, measured.batch_s, strict=False)
                return median(own / limit for own, limit in pairs) - 1
        return None
