"""One way to load, and one part: the ways that load the same data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unstarve.benchmark.plan import Sizes
from unstarve.model import Bar, Kind, Promise


class Missing(Exception):
    """A way cannot be measured here; the message says why."""


@dataclass(frozen=True)
class Entry:
    """A way to load: `make(data)` returns the loader, or raises Missing."""

    name: str
    kind: Kind
    make: Callable[[Any], Any]
    bars: tuple[Bar, ...] = ()
    same_batches: bool = True
    """With the same seed it gives the batches that stock gives; that is checked for ours."""
    afresh: bool = False
    """It is made for each measurement and dropped, for the system forgets no file that is mapped."""
    limit: str | None = None
    """The limit that it is compared with, by name; the part's first where none is given."""
    read_directly: Callable[[Any], Sequence[Path]] | None = None
    """The files that it reads past the page cache, which should hold nothing of them afterwards."""


@dataclass(frozen=True)
class PartPlan:
    """`prepare` makes the data, or finds it in the folder if it was made before; stock is the first entry."""

    letter: str
    name: str
    title: Callable[[Sizes], str]
    prepare: Callable[[Sizes, Path], Any]
    entries: tuple[Entry, ...]
    before: Callable[[Any], None] | None = None
    """Called before each measurement, with the data."""
    skip: int = 0
    """Batches that are taken before the clock starts: workers are started and fill their queues."""
    pairs: int = 0
    """Stock and a way take turns so many times in a round: for differences of a few percent."""
    memory: bool = False
    """Whether memory besides the data is measured."""
    batch_samples: Callable[[Sizes], int] | None = None
    """Samples in a batch, where ways are told by samples per second and what each costs in CPU time."""


def ours(name: str, make: Callable[[Any], Any], *bars: Bar, **options: Any) -> Entry:
    """A way of unstarve's."""
    return Entry(name, Kind.OURS, make, bars, **options)


def stock(make: Callable[[Any], Any], name: str = "torch.utils.data.DataLoader") -> Entry:
    """The way that all others are compared with."""
    return Entry(name, Kind.STOCK, make)


def faster(times: float) -> Bar:
    """At least so many times as fast as stock."""
    return Bar(Promise.SPEEDUP, times)


def public(name: str) -> Any:
    """Return what unstarve offers under this name; raise Missing where it does not."""
    import unstarve

    try:
        return getattr(unstarve, name)
    except (AttributeError, ImportError):
        raise Missing("not available") from None
