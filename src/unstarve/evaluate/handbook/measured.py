"""What the quick measurements return; ``print`` one to read it as a sentence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from unstarve.words import duration, percent, rate, size


class ByName(Mapping[str, Any]):
    """Numbers that can be read by name as well: ``result["load_ratio"]`` is ``result.load_ratio``."""

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
    """Batches asked for: more than `num_batches` if the loader ended first."""
    start_time: float
    """Making the iterator (starting workers); not part of the other times."""
    load_time: float
    """Inside ``next()``."""
    compute_time: float
    total_time: float
    """The whole loop: load, compute, and what lies between."""

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
            return "the loader yielded no batch, so there is nothing to measure"
        return (
            f"{percent(self.load_ratio)} of the time goes to loading: {duration(self.avg_load)} to load and "
            f"{duration(self.avg_compute)} to compute a batch, over {self.num_batches} batches"
            f"{_shortfall(self.num_batches, self.requested)}; starting took {duration(self.start_time)}"
        )


class LoaderThroughput(float):
    """How fast a loader delivers to a consumer that does nothing, as a number of batches per second.

    It can be formatted, divided and compared like any number; without a batch it is ``nan``.
    """

    num_batches: int
    """Batches timed; the warm-up is not among them."""
    requested: int | None
    """Batches asked for; None for the whole epoch."""
    warmup: int
    """Batches left untimed."""
    start_time: float
    """Seconds to make the iterator (start workers); not part of `total_time`."""
    total_time: float
    """Seconds for the timed batches."""
    samples: int | None
    bytes: int | None
    """Of tensors and arrays; None where a batch could not be weighed."""

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
            return f"no batch was left to time after {self.warmup} of warm-up"
        rates = [f"{rate(self.batches_per_s)} batches/s"]
        if self.samples_per_s is not None:
            rates.append(f"{rate(self.samples_per_s)} samples/s")
        if self.bytes_per_s is not None:
            rates.append(f"{size(self.bytes_per_s)}/s")
        return (
            f"{', '.join(rates)} over {self.num_batches} batches after {self.warmup} of warm-up"
            f"{_shortfall(self.num_batches, self.requested)}; starting took {duration(self.start_time)}"
        )

    __repr__ = __str__


def _shortfall(delivered: int, requested: int | None) -> str:
    if requested is None or delivered >= requested:
        return ""
    return f" (the loader ended before the {requested} asked for)"
