"""Results of `find_num_workers` and `diagnose_dataloader`: measured arguments and costs of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from unstarve.model.diagnosis import Advice
from unstarve.model.nouns import Shown


@dataclass(frozen=True, slots=True)
class LoaderArguments:
    """Arguments of a DataLoader that were tried; None leaves the default."""

    num_workers: int
    batch_size: int | None
    prefetch_factor: int | None = None
    pin_memory: bool = False


@dataclass(frozen=True, slots=True)
class Tried:
    """One setting and its throughput in samples per second, round by round.

    Round n of one setting ran right next to round n of the others; only such pairs are compared.
    """

    setting: LoaderArguments
    rates: tuple[float, ...]

    @property
    def rate(self) -> float:
        """The median round."""
        return median(self.rates)

    @property
    def low(self) -> float:
        return min(self.rates)

    @property
    def high(self) -> float:
        return max(self.rates)


@dataclass(frozen=True, slots=True)
class WorkerSearch(Shown):
    """How many workers a dataset needs, as `find_num_workers` returns it."""

    num_workers: int
    """The smallest number that is as fast as any other, within the noise."""
    speedup: float | None
    """Over no workers; None if that was not measured."""
    headline: str
    tried: tuple[Tried, ...]
    """By number of workers; those that did not fit into the time budget are missing."""
    cores: float
    """Cores that this process may use."""
    arguments: Mapping[str, Any]
    """For ``DataLoader(dataset, **arguments)``."""
    code: str
    notes: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()
    """What else would make loading faster, as in a report of `unstarve run`; gains of loading alone."""

    def __str__(self) -> str:
        return self._as_text()


@dataclass(frozen=True, slots=True)
class SampleCost:
    """Cost of single samples, read one after another in the calling process; times in seconds."""

    samples: int
    typical_s: float
    p95_s: float
    longest_s: float
    slowest: int | None
    """Index of the slowest sample; None for an iterable dataset."""
    cpu_share: float
    """Share of the time on a CPU; the rest was blocked on storage, network or a lock."""
    sample_bytes: int | None
    """Size of tensors and arrays; None if unknown."""


@dataclass(frozen=True, slots=True)
class StartCost:
    """Seconds from ``iter(loader)`` to the first batch."""

    fresh_s: float
    """With new workers."""
    kept_s: float
    """With ``persistent_workers=True``, from the second epoch on."""
    shown: bool
    """Whether the difference is larger than the noise."""


@dataclass(frozen=True, slots=True)
class ProfiledFunction:
    """A function in which reading samples spends time."""

    name: str
    file: str
    line: int
    calls: int
    own_s: float
    """Time in the function itself, without its callees."""
    share: float
    """Share of all profiled time."""


@dataclass(frozen=True, slots=True)
class LoaderDiagnosis(Shown):
    """How to load a dataset, as `diagnose_dataloader` returns it."""

    headline: str
    sample: SampleCost
    workers: WorkerSearch
    batch_sizes: tuple[Tried, ...]
    prefetch: tuple[Tried, ...]
    pinning: tuple[Tried, ...]
    """Empty without a GPU."""
    start: StartCost | None
    """None without workers."""
    functions: tuple[ProfiledFunction, ...]
    findings: tuple[str, ...]
    """The result of each part, as sentences."""
    arguments: Mapping[str, Any]
    """For ``DataLoader(dataset, **arguments)``."""
    code: str
    """The recommended call."""
    notes: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()
    """As in `WorkerSearch`."""

    def __str__(self) -> str:
        return self._as_text()
