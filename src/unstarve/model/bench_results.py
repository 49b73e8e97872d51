"""Results of a benchmark: several ways to load the same data, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Why a way to load is measured."""

    STOCK = "stock"
    """torch's own loader: the baseline."""
    OURS = "ours"
    PEER = "peer"
    """Another project, where it is installed."""
    LIMIT = "limit"
    """The one unavoidable step, alone."""


class Promise(StrEnum):
    """What a bar promises."""

    SPEEDUP = "speedup"
    """At least this many times as fast as stock."""
    OVER_LIMIT = "over_limit"
    """At most this share slower than the part's limit."""
    EXTRA_BYTES = "extra_bytes"
    """At most this much memory beyond the data."""
    CACHED_SHARE = "cached_share"
    """At most this share of the files in the page cache afterwards."""


@dataclass(frozen=True, slots=True)
class Bar:
    """The least that a way must reach."""

    promise: Promise
    limit: float


@dataclass(frozen=True, slots=True)
class Checked:
    """A bar and what was measured."""

    bar: Bar
    measured: float | None
    met: bool | None
    """None if it was not measured, or the bar does not apply to this size."""


@dataclass(frozen=True, slots=True)
class Extra:
    """Peak memory of an epoch as proportional set size (PSS): shared memory counts once."""

    before_bytes: int
    """The training process with the data loaded, before the loader was created."""
    main_bytes: int
    workers_bytes: int

    @property
    def besides_data_bytes(self) -> int:
        """What loading added, in all processes together."""
        return max(0, self.main_bytes + self.workers_bytes - self.before_bytes)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to load, measured once per seed."""

    name: str
    kind: Kind
    missing: str | None = None
    """Why it was not measured; the fields below are then empty or None."""
    batch_s: tuple[float, ...] = ()
    """Seconds per batch, one entry per seed."""
    mean_s: float | None = None
    deviation_s: float | None = None
    """Standard deviation over the seeds; None for fewer than two."""
    speedup: float | None = None
    """Median over the seeds of stock's time over this way's, both measured in the same round."""
    engine: str | None = None
    """The engine that an unstarve loader chose."""
    extra: Extra | None = None
    cached_share: float | None = None
    """Share of the files that the page cache held after reading them past it."""
    checked: tuple[Checked, ...] = ()
    cpu_s: float | None = None
    """CPU seconds per batch, of all processes; None if not requested."""
    rival: str | None = None
    """Name of a way that must not be faster: the same dataset in torch's loader."""
    over_rival: float | None = None
    """Median over the rounds of the rival's time over this way's."""


@dataclass(frozen=True, slots=True)
class Part:
    """Ways to load one kind of data."""

    letter: str
    name: str
    title: str
    ways: tuple[Way, ...]
    batch_samples: int | None = None
    """Samples in a batch, if results are given in samples per second."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """All results of one benchmark."""

    parts: tuple[Part, ...]
    seeds: tuple[int, ...]
    quick: bool
    interrupted: bool
    """Stopped from the keyboard: parts are missing, or rounds of the last one."""
    started_at: str
    wall_s: float
    machine: Mapping[str, str | int]
    versions: Mapping[str, str]
