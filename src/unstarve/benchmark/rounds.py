"""One part, round by round: all of its ways take turns, so that what slows the machine slows them all."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from unstarve.benchmark.entries import Entry, Missing, PartPlan
from unstarve.benchmark.files import cached_share
from unstarve.benchmark.memory import extra_memory
from unstarve.benchmark.plan import Plan
from unstarve.benchmark.timing import cpu_per_batch, median_ratio, same, seed_all, summary, time_per_batch
from unstarve.intervals import turn_order
from unstarve.model import Bar, Checked, Extra, Kind, Part, Promise, Way

Say = Callable[[str], None]

_WARM_UP = 3
"""Batches of each way before the first round: code is imported, memory taken from the system."""


@dataclass
class Measured:
    """What is known of one way so far."""

    loader: Any = None
    engine: str | None = None
    missing: str | None = None
    batch_s: list[float] = field(default_factory=list)
    stock_s: list[float] = field(default_factory=list)
    """Stock's time to compare each of these with."""
    cpu_s: float | None = None
    extra: Extra | None = None
    cached_share: float | None = None


class Rounds:
    """Measures one part; `result` may be asked for at any time, and says what is known by then."""

    def __init__(self, part: PartPlan, plan: Plan, folder: Path, say: Say) -> None:
        self._part = part
        self._plan = plan
        self._folder = folder
        self._say = say
        self._data: Any = None
        self._measured = {entry: Measured() for entry in part.entries}

    def run(self) -> None:
        """Measure everything; an entry that fails says so and is left out."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a way has to say about itself is not for this table
            self._say(f"{self._part.name}: making the data")
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

    def _timed(self, entry: Entry, seed: int) -> None:
        stock, measured = self._part.entries[0], self._measured[entry]
        if self._measured[stock].missing is not None:
            raise Missing("stock was not measured")
        for base_s, batch_s in self._pairs(stock, entry, seed):
            measured.batch_s.append(batch_s)
            measured.stock_s.append(base_s)
        if entry.read_directly is not None:
            measured.cached_share = cached_share(entry.read_directly(self._data))

    def _pairs(self, stock: Entry, entry: Entry, seed: int) -> Iterator[tuple[float, float]]:
        """Stock's time and this way's; several of each where the part is measured in pairs."""
        if entry is stock:
            took_s = self._time(stock, seed)
            yield took_s, took_s
        elif not self._part.pairs:
            yield self._measured[stock].batch_s[-1], self._time(entry, seed)
        else:
            for turn in range(self._part.pairs):
                both_s = {one: self._time(one, seed) for one in turn_order((stock, entry), turn)}
                yield both_s[stock], both_s[entry]

    def _time(self, entry: Entry, seed: int) -> float:
        if self._part.before is not None:
            self._part.before(self._data)
        gc.collect()
        seed_all(seed)
        # A cold cache is cold once: the second epoch would find what the first one read.
        once = self._part.before is not None or self._part.pairs > 0
        least_s = 0.0 if once else self._plan.sizes.least_s
        loader = entry.make(self._data) if entry.afresh else self._measured[entry].loader
        return time_per_batch(loader, least_s=least_s, skip=self._part.skip)

    def _make(self, entry: Entry) -> None:
        self._say(f"{self._part.name}: making {entry.name}")
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
                raise Missing("gives other batches than stock")
        measured.engine = getattr(made, "engine", None)
        measured.loader = None if entry.afresh else made

    def _cost(self, entry: Entry) -> None:
        self._say(f"{self._part.name}: CPU time of {entry.name}")
        self._measured[entry].cpu_s = cpu_per_batch(self._measured[entry].loader)

    def _remember(self, entry: Entry) -> None:
        if entry.kind is not Kind.LIMIT:
            self._say(f"{self._part.name}: memory of {entry.name}")
            self._measured[entry].extra = extra_memory(self._part, entry.name, self._plan.sizes, self._folder)

    def _guarded(self, entry: Entry, do: Callable[[Entry], None]) -> None:
        measured = self._measured[entry]
        if measured.missing is not None:
            return
        try:
            do(entry)
        except Missing as why:
            measured.missing = str(why)
        except Exception as error:  # one way that fails must not end the others
            measured.missing = f"failed: {type(error).__name__}: {error}"

    def result(self) -> Part:
        """What is known of the part."""
        part = self._part
        ways = tuple(self._way(entry, measured) for entry, measured in self._measured.items())
        sizes = self._plan.sizes
        samples = None if part.batch_samples is None else part.batch_samples(sizes)
        return Part(part.letter, part.name, part.title(sizes), ways, samples)

    def _way(self, entry: Entry, measured: Measured) -> Way:
        if measured.missing is not None or not measured.batch_s:
            return Way(entry.name, entry.kind, missing=measured.missing or "not measured yet")
        mean_s, deviation_s = summary(tuple(measured.batch_s))
        way = Way(
            entry.name, entry.kind,
            batch_s=tuple(measured.batch_s), mean_s=mean_s, deviation_s=deviation_s,
            speedup=median_ratio(measured.stock_s, measured.batch_s),
            engine=measured.engine, cpu_s=measured.cpu_s,
            extra=measured.extra, cached_share=measured.cached_share,
        )  # fmt: skip
        return replace(way, checked=tuple(self._checked(bar, entry, way) for bar in entry.bars))

    def _checked(self, bar: Bar, entry: Entry, way: Way) -> Checked:
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

    def _over_limit(self, entry: Entry, way: Way) -> float | None:
        """How much slower than its limit, as a share of it: the median over the rounds that both have."""
        for other, measured in self._measured.items():
            if other.kind is Kind.LIMIT and entry.limit in (None, other.name) and measured.batch_s:
                pairs = zip(way.batch_s, measured.batch_s, strict=False)
                return median(own / limit for own, limit in pairs) - 1
        return None
