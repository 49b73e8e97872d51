"""An iterable whose iterations are recorded: what `unstarve.watch` returns for one."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Iterator
from typing import Any

from unstarve import marks
from unstarve.collect.counters import own_counters
from unstarve.collect.fetching import FetchProbe
from unstarve.collect.recorder import recorder
from unstarve.collect.tap import Tap
from unstarve.collect.watched_source import makes_its_batches
from unstarve.stack_levels import uncounted

_clock = time.perf_counter_ns


class Watched:
    """An iterable whose iterations are recorded; everything else is passed on to it."""

    def __init__(
        self,
        iterable: Iterable[Any],
        name: str | None,
        kind: str | None = None,
        site: tuple[Any, ...] | None = None,
    ) -> None:
        """`kind` and `site` tell what it is and where it comes from; by default its class and the loop."""
        self._iterable = iterable
        self._name = name
        self._kind = kind
        self._site = site
        setattr(self, marks.WATCHED, iterable)

    def __iter__(self) -> Iterator[Any]:
        owner = recorder()
        if owner is None or not owner.active:
            return iter(self._iterable)
        kind = self._kind or type(self._iterable).__name__
        number = owner.loader_number(self, kind, self._site, self._name)
        tap = Tap(owner, number, getattr(self._iterable, "batch_size", None), collated=True)
        if makes_its_batches(self._iterable):
            tap.probe = FetchProbe(owner, number)
            tap.wait.fetch_by(tap.probe.work)
        counters = own_counters()
        depth = counters.depth
        mark = owner.device.ask() if owner.device is not None and not depth else None
        begin = _clock()
        counters.depth = depth + 1  # a DataLoader in there is nested: its waits are part of this one's
        try:
            iterator = iter(self._iterable)
        finally:
            counters.depth = depth
        tap.begin(self._iterable, begin, _clock(), mark=mark)
        return _WatchedIterator(iterator, tap)

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]  # a TypeError of its own is what len() should give

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_iterable":
            raise AttributeError(name)  # copy and pickle probe an object before it has its attributes
        return getattr(self._iterable, name)


class _WatchedIterator:
    def __init__(self, iterator: Iterator[Any], tap: Tap) -> None:
        self._iterator = iterator
        self._tap = tap
        self._advance = next if tap.probe is None else functools.partial(_counted, tap.probe)

    def __iter__(self) -> _WatchedIterator:
        return self

    @uncounted
    def __next__(self) -> Any:
        self._tap.note_gradients()
        return self._tap.next_batch(self._tap, self._advance, self._iterator)


def _counted(probe: FetchProbe, iterator: Iterator[Any]) -> Any:
    return probe.call(next, (iterator,), {})
