"""What the quick measurements return; ``print`` one to read it as a sentence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoadingOverhead:
    """How a training loop's time splits between waiting for data and computing; all times in seconds."""

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
            f"{self.load_ratio:.1%} of the time goes to loading: {self.avg_load * 1e3:.2f} ms to load and "
            f"{self.avg_compute * 1e3:.2f} ms to compute a batch, over {self.num_batches} batches"
            f"{_shortfall(self.num_batches, self.requested)}; starting took {self.start_time * 1e3:.0f} ms"
        )


@dataclass(frozen=True, slots=True)
class LoaderThroughput:
    """How fast a loader delivers to a consumer that does nothing."""

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
        known = amount is not None and self.num_batches and self.total_time > 0
        return amount / self.total_time if amount is not None and known else None

    def __str__(self) -> str:
        if self.batches_per_s is None:
            return f"no batch was left to time after {self.warmup} of warm-up"
        rates = [f"{self.batches_per_s:,.1f} batches/s"]
        if self.samples_per_s is not None:
            rates.append(f"{self.samples_per_s:,.0f} samples/s")
        if self.bytes_per_s is not None:
            rates.append(f"{self.bytes_per_s / 1e6:,.1f} MB/s")
        return (
            f"{', '.join(rates)} over {self.num_batches} batches after {self.warmup} of warm-up"
            f"{_shortfall(self.num_batches, self.requested)}; starting took {self.start_time * 1e3:.0f} ms"
        )


def _shortfall(delivered: int, requested: int | None) -> str:
    if requested is None or delivered >= requested:
        return ""
    return f" (the loader ended before the {requested} asked for)"
