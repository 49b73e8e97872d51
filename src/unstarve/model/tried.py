"""Loader settings that were tried out on a dataset, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from unstarve.model.nouns import Shown


@dataclass(frozen=True, slots=True)
class LoaderArguments:
    """Arguments of a DataLoader that were tried; what is None was left to torch."""

    num_workers: int
    batch_size: int | None
    prefetch_factor: int | None = None
    pin_memory: bool = False


@dataclass(frozen=True, slots=True)
class Tried:
    """One setting and its throughput in samples per second, round by round.

    Round n of one setting ran right beside round n of the others: only such pairs are compared.
    """

    setting: LoaderArguments
    rates: tuple[float, ...]

    @property
    def rate(self) -> float:
        """The typical round."""
        return median(self.rates)

    @property
    def low(self) -> float:
        return min(self.rates)

    @property
    def high(self) -> float:
        return max(self.rates)


@dataclass(frozen=True, slots=True)
class WorkerSearch(Shown):
    """How many workers a dataset needs: what `find_num_workers` returns."""

    num_workers: int
    """The fewest that are as fast as any, as far as the measurements can tell."""
    speedup: float | None
    """Over no workers; None where that was not measured."""
    headline: str
    tried: tuple[Tried, ...]
    """In the order of workers; those that the time did not suffice for are missing."""
    cores: float
    """That this process may use."""
    arguments: Mapping[str, Any]
    """For ``DataLoader(dataset, **arguments)``."""
    code: str
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self._as_text()


@dataclass(frozen=True, slots=True)
class SampleCost:
    """Getting single samples in the calling process, one after the other; times in seconds."""

    samples: int
    typical_s: float
    p95_s: float
    longest_s: float
    slowest: int | None
    """Index of the longest; None for an iterable dataset."""
    cpu_share: float
    """Of the time, on a CPU; the rest was blocked: on storage, a network, a lock."""
    sample_bytes: int | None
    """Of tensors and arrays; None where a sample could not be weighed."""


@dataclass(frozen=True, slots=True)
class StartCost:
    """From ``iter(loader)`` to the first batch; seconds."""

    fresh_s: float
    """With workers that have to be started."""
    kept_s: float
    """With ``persistent_workers=True``, from the second epoch on."""
    shown: bool
    """The difference is larger than the noise."""


@dataclass(frozen=True, slots=True)
class ProfiledFunction:
    """A function that getting samples spends time in."""

    name: str
    file: str
    line: int
    calls: int
    own_s: float
    """Inside of it, without what it calls."""
    share: float
    """Of all profiled time."""


@dataclass(frozen=True, slots=True)
class LoaderDiagnosis(Shown):
    """How a dataset wants to be loaded: what `diagnose_dataloader` returns."""

    headline: str
    sample: SampleCost
    workers: WorkerSearch
    batch_sizes: tuple[Tried, ...]
    prefetch: tuple[Tried, ...]
    pinning: tuple[Tried, ...]
    """Empty where there is no GPU to copy to."""
    start: StartCost | None
    """None without workers."""
    functions: tuple[ProfiledFunction, ...]
    findings: tuple[str, ...]
    """What each part of it came to, in sentences."""
    arguments: Mapping[str, Any]
    """For ``DataLoader(dataset, **arguments)``."""
    code: str
    """The recommended call."""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self._as_text()
