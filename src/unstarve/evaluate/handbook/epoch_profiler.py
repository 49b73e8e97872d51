"""Time the batches of a training loop by hand, epoch by epoch."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np

from unstarve.errors import UsageError
from unstarve.evaluate.evaluator.timed_iterator import quick_size
from unstarve.evaluate.handbook.measure_loader import ByName
from unstarve.words import percent, rate

_UNKNOWN = -1
_HEADINGS = (
    "epoch", "batches", "total s", "mean ms", "std ms", "p50 ms", "p95 ms", "max ms",
    "batches/s", "samples/s", "loading",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class EpochProfile(ByName):
    """One epoch in numbers: times in seconds, None if unknown.

    A batch's time runs from the batch before it (for the first, from the start of the epoch) to itself.
    """

    NAMES: ClassVar = (
        "num_batches", "total_time", "mean_time", "std_time", "min_time", "max_time", "throughput",
    )  # fmt: skip

    epoch: int
    """Counted from 1."""
    num_batches: int
    total_time: float
    mean_time: float | None
    std_time: float | None
    min_time: float | None
    max_time: float | None
    percentiles: dict[str, float]
    """``p50``, ``p90``, ``p95``, ``p99``; empty without a batch."""
    throughput: float | None
    """Batches per second."""
    samples_per_s: float | None
    """None unless every batch's size is known."""
    load_ratio: float | None
    """Share of the epoch spent starting the loader and inside ``next()``; known if `watch` was used."""


@dataclass(slots=True)
class _OpenEpoch:
    begin: float
    last: float
    batch_s: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    load_s: float | None = None


class DataLoaderProfiler:
    """Statistics of batch times. Let it watch a loader::

        profiler = DataLoaderProfiler()
        for batch in profiler.watch(loader):
            train(batch)
        print(profiler.report())

    or call `start_epoch`, `record_batch` after each batch, and `end_epoch`. As a context manager it ends an
    epoch that is still running. Calls out of order raise a UsageError.
    """

    def __init__(self) -> None:
        self.epochs: list[EpochProfile] = []
        self._open: _OpenEpoch | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is not None:
            self.end_epoch()

    def start_epoch(self) -> None:
        """Start the clock of an epoch."""
        if self._open is not None:
            raise UsageError("an epoch is already running; call end_epoch() before start_epoch()")
        now = time.perf_counter()
        self._open = _OpenEpoch(begin=now, last=now)

    def record_batch(self, size: int | None = None) -> None:
        """Record that a batch is done; `size` is its number of samples."""
        epoch = self._need_open("record_batch()")
        now = time.perf_counter()
        epoch.batch_s.append(now - epoch.last)
        epoch.sizes.append(_UNKNOWN if size is None else size)
        epoch.last = now

    def end_epoch(self) -> EpochProfile:
        """End the epoch and return its profile, which is also kept in `epochs`."""
        epoch = self._need_open("end_epoch()")
        self._open = None
        profile = _profile(len(self.epochs) + 1, epoch, total_s=time.perf_counter() - epoch.begin)
        self.epochs.append(profile)
        return profile

    def watch(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Iterate over `loader` as one epoch, which ends with the loop, however that ends."""
        self.start_epoch()
        epoch = self._need_open("watch()")
        epoch.load_s = 0.0
        try:
            iterator = iter(loader)
            asked = epoch.begin
            while True:
                try:
                    batch = next(iterator)
                except StopIteration:
                    return
                self.record_batch(quick_size(batch))
                epoch.load_s += epoch.last - asked
                yield batch
                asked = time.perf_counter()
        finally:
            if self._open is epoch:  # leaving a with-block may have ended it already
                self.end_epoch()

    def report(self) -> str:
        """Return a table of all epochs so far."""
        rows = [_HEADINGS, *(_row(profile) for profile in self.epochs)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
        )

    def _need_open(self, call: str) -> _OpenEpoch:
        if self._open is None:
            raise UsageError(f"{call} needs a running epoch; call start_epoch() first")
        return self._open


def _profile(number: int, epoch: _OpenEpoch, *, total_s: float) -> EpochProfile:
    times = np.array(epoch.batch_s)
    some = times.size > 0
    timed = some and total_s > 0
    sized = timed and _UNKNOWN not in epoch.sizes
    return EpochProfile(
        epoch=number,
        num_batches=times.size,
        total_time=total_s,
        mean_time=float(times.mean()) if some else None,
        std_time=float(times.std()) if some else None,
        min_time=float(times.min()) if some else None,
        max_time=float(times.max()) if some else None,
        percentiles={f"p{share}": float(np.percentile(times, share)) for share in (50, 90, 95, 99) if some},
        throughput=times.size / total_s if timed else None,
        samples_per_s=sum(epoch.sizes) / total_s if sized else None,
        load_ratio=epoch.load_s / total_s if timed and epoch.load_s is not None else None,
    )


def _row(profile: EpochProfile) -> tuple[str, ...]:
    percentiles_s = (profile.percentiles.get("p50"), profile.percentiles.get("p95"))
    times_s = (profile.mean_time, profile.std_time, *percentiles_s, profile.max_time)
    return (
        str(profile.epoch),
        str(profile.num_batches),
        f"{profile.total_time:.2f}",
        *("–" if seconds is None else f"{seconds * 1e3:.2f}" for seconds in times_s),
        *("–" if per_s is None else rate(per_s) for per_s in (profile.throughput, profile.samples_per_s)),
        "–" if profile.load_ratio is None else percent(profile.load_ratio),
    )
