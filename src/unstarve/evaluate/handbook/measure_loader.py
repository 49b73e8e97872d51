"""Quick measurements of a loader: how fast it is, and how much of a training step it takes.

``print`` a result to read it as a sentence.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from unstarve.collect.describe import batch_extent
from unstarve.errors import UsageError
from unstarve.loader_proxy import check_loader
from unstarve.words import duration, percent, rate, size

_DEFAULT_COMPUTE_S = 0.01


def measure_loading_overhead(
    loader: Iterable[Any],
    num_batches: int = 50,
    compute_time: float | None = None,
    *,
    compute: Callable[[Any], object] | None = None,
) -> LoadingOverhead:
    """Iterate over `loader` as a training loop would, and separate loading from computing.

    Computing is simulated by sleeping `compute_time` seconds per batch (0.01 by default), which leaves the
    CPU to the workers as a GPU step would; or `compute(batch)` is called. If that uses CUDA, the device is
    synchronized after each call, so its work is not billed to loading; work that would overlap with loading
    then does not. A loader shorter than `num_batches` is measured to its end.
    """
    _check_count("num_batches", num_batches, least=1)
    step = _simulated(compute_time) if compute is None else _synchronized(compute, compute_time)
    start_s, iterator = _started(loader)
    begin = end = time.perf_counter()
    loads_s: list[float] = []
    computes_s: list[float] = []
    for load_s, batch in _timed(iterator):
        got = time.perf_counter()
        step(batch)
        end = time.perf_counter()
        loads_s.append(load_s)
        computes_s.append(end - got)
        if len(loads_s) == num_batches:
            break
    return LoadingOverhead(
        num_batches=len(loads_s),
        requested=num_batches,
        start_time=start_s,
        load_time=sum(loads_s),
        compute_time=sum(computes_s),
        total_time=end - begin,
    )


def measure_throughput(
    loader: Iterable[Any], num_batches: int | None = None, *, warmup: int = 3
) -> LoaderThroughput:
    """Take `num_batches` batches (by default the whole epoch) as fast as `loader` delivers them.

    The first `warmup` batches are taken before the clock starts: they include starting workers and filling
    the pipeline. An endless loader needs `num_batches`.
    """
    if num_batches is not None:
        _check_count("num_batches", num_batches, least=1)
    _check_count("warmup", warmup, least=0)
    start_s, iterator = _started(loader)
    skipped = sum(1 for _ in itertools.islice(iterator, warmup))
    loads_s: list[float] = []
    extents: list[tuple[int, int]] = []
    for load_s, batch in _timed(iterator):
        loads_s.append(load_s)
        extents.append(_extent(batch))
        if len(loads_s) == num_batches:
            break
    return LoaderThroughput(
        num_batches=len(loads_s),
        requested=num_batches,
        warmup=skipped,
        start_time=start_s,
        total_time=sum(loads_s),
        samples=_total(size for size, _ in extents),
        bytes=_total(nbytes for _, nbytes in extents),
    )


def _started(loader: Iterable[Any]) -> tuple[float, Iterator[Any]]:
    """Return how many seconds ``iter(loader)`` took, and the iterator."""
    check_loader(loader)
    begin = time.perf_counter()
    iterator = iter(loader)
    return time.perf_counter() - begin, iterator


def _timed(iterator: Iterator[Any]) -> Iterator[tuple[float, Any]]:
    """Yield the seconds that ``next()`` took, and the batch; the consumer's time is not counted."""
    while True:
        asked = time.perf_counter()
        try:
            batch = next(iterator)
        except StopIteration:
            return
        yield time.perf_counter() - asked, batch


def _simulated(compute_time: float | None) -> Callable[[Any], None]:
    seconds = _DEFAULT_COMPUTE_S if compute_time is None else compute_time
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < math.inf:
        raise UsageError(f"compute_time must be >= 0 seconds, got {compute_time!r}")
    return lambda batch: time.sleep(seconds)


def _synchronized(compute: Callable[[Any], object], compute_time: float | None) -> Callable[[Any], None]:
    if compute_time is not None:
        raise UsageError("pass either compute_time (to simulate) or compute (to call), not both")
    if not callable(compute):
        raise UsageError(f"compute must be callable, got {compute!r}")

    def step(batch: Any) -> None:
        compute(batch)
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # untyped in torch
            torch.cuda.synchronize()

    return step


def _check_count(name: str, value: int, *, least: int) -> None:
    if type(value) is not int or value < least:
        raise UsageError(f"{name} must be an integer >= {least}, got {value!r}")


def _extent(batch: Any) -> tuple[int, int]:
    try:
        return batch_extent(batch)
    except Exception:  # a sparse tensor or a foreign object: its size is unknown, its time is not
        return -1, -1


def _total(amounts: Iterable[int]) -> int | None:
    """The sum; None if one amount is unknown."""
    known = list(amounts)
    return None if any(amount < 0 for amount in known) else sum(known)


class ByName(Mapping[str, Any]):
    """Fields can also be read by key: ``result["load_ratio"]`` is ``result.load_ratio``."""

    __slots__ = ()

    NAMES: ClassVar[tuple[str, ...]]

    def __getitem__(self, name: str) -> Any:
        if name not in self.NAMES:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.NAMES)

    def __len__(self) -> int:
        return len(self.NAMES)


@dataclass(frozen=True, slots=True)
class LoadingOverhead(ByName):
    """How a training loop's time splits between waiting for data and computing; all times in seconds."""

    NAMES: ClassVar = (
        "num_batches", "load_time", "compute_time", "total_time", "load_ratio",
        "avg_load", "avg_compute", "start_time",
    )  # fmt: skip

    num_batches: int
    requested: int
    """Batches requested: more than `num_batches` if the loader ended first."""
    start_time: float
    """Creating the iterator (starting workers); not part of the other times."""
    load_time: float
    """Inside ``next()``."""
    compute_time: float
    total_time: float
    """The whole loop: loading, computing, and everything in between."""

    @property
    def load_ratio(self) -> float | None:
        """Share of the loop spent loading; None without a batch."""
        return self.load_time / self.total_time if self.num_batches and self.total_time > 0 else None

    @property
    def avg_load(self) -> float | None:
        return self.load_time / self.num_batches if self.num_batches else None

    @property
    def avg_compute(self) -> float | None:
        return self.compute_time / self.num_batches if self.num_batches else None

    def __str__(self) -> str:
        if self.avg_load is None or self.avg_compute is None or self.load_ratio is None:
            return "the loader yielded no batch: nothing to measure"
        return (
            f"{percent(self.load_ratio)} of the time is spent loading: {duration(self.avg_load)} to load and "
            f"{duration(self.avg_compute)} to compute per batch, over {self.num_batches} batches"
            f"{_shortfall(self.num_batches, self.requested)}; starting took {duration(self.start_time)}"
        )


class LoaderThroughput(float):
    """Batches per second that a loader delivers to a consumer that does nothing.

    It can be formatted, divided and compared like any number; without a batch it is ``nan``.
    """

    num_batches: int
    """Batches timed, without the warm-up."""
    requested: int | None
    """Batches requested; None for the whole epoch."""
    warmup: int
    """Batches left untimed."""
    start_time: float
    """Seconds to create the iterator (start workers); not part of `total_time`."""
    total_time: float
    """Seconds for the timed batches."""
    samples: int | None
    bytes: int | None
    """Bytes of tensors and arrays; None if the size of a batch is unknown."""

    def __new__(cls, **measured: Any) -> LoaderThroughput:
        """Takes the fields above by name."""
        batches, total_s = measured["num_batches"], measured["total_time"]
        self = super().__new__(cls, batches / total_s if batches and total_s > 0 else math.nan)
        vars(self).update(measured)
        return self

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]:
        return (), vars(self)

    @property
    def batches_per_s(self) -> float | None:
        return self._per_s(self.num_batches)

    @property
    def samples_per_s(self) -> float | None:
        return self._per_s(self.samples)

    @property
    def bytes_per_s(self) -> float | None:
        return self._per_s(self.bytes)

    def _per_s(self, amount: int | None) -> float | None:
        return None if amount is None or math.isnan(self) else amount / self.total_time

    def __str__(self) -> str:
        if self.batches_per_s is None:
            return f"no batch was left to time after {self.warmup} warm-up batches"
        rates = [f"{rate(self.batches_per_s)} batches/s"]
        if self.samples_per_s is not None:
            rates.append(f"{rate(self.samples_per_s)} samples/s")
        if self.bytes_per_s is not None:
            rates.append(f"{size(self.bytes_per_s)}/s")
        return (
            f"{', '.join(rates)} over {self.num_batches} batches after {self.warmup} warm-up batches"
            f"{_shortfall(self.num_batches, self.requested)}; starting took {duration(self.start_time)}"
        )

    __repr__ = __str__


def _shortfall(delivered: int, requested: int | None) -> str:
    if requested is None or delivered >= requested:
        return ""
    return f" (the loader ended before the {requested} requested)"
