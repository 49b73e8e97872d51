"""What to measure: sizes, entries (ways to load) and parts (the entries that load the same data)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unstarve.model import Bar, Kind, Promise


@dataclass(frozen=True)
class Sizes:
    """How much data; the bars apply to the default sizes."""

    rows: int = 10_000
    columns: int = 100
    row_batch: int = 64
    images: int = 10_000
    """Images of 3×224×224 bytes: 1.5 GB."""
    image_batch: int = 128
    files: int = 4_000
    file_bytes: int = 100_000
    file_batch: int = 64
    handed_over: int = 200
    """Batches that a worker hands over."""
    waited_for: int = 320
    """Samples that take `wait_s` each."""
    wait_s: float = 10e-3
    waited_batch: int = 32
    jpegs: int = 1024
    jpeg_batch: int = 32
    computed: int = 64
    """Few, so that a disturbance of the machine outlasts a pair of measurements and slows stock as well."""
    computed_by_workers: int = 256
    compute_s: float = 1e-3
    computed_batch: int = 16
    least_s: float = 0.3
    """Minimum time for which each entry is measured per seed."""


QUICK = Sizes(
    rows=2_000,
    images=128,
    image_batch=32,
    files=64,
    file_batch=16,
    handed_over=20,
    waited_for=64,
    waited_batch=16,
    jpegs=24,
    jpeg_batch=4,
    computed=16,
    computed_by_workers=32,
    computed_batch=8,
    least_s=0.02,
)


@dataclass(frozen=True)
class BenchPlan:
    """The settings of one benchmark."""

    parts: tuple[str, ...] = ()
    """Letters or names; empty for all."""
    seeds: tuple[int, ...] = (0, 0, 0)
    sizes: Sizes = Sizes()
    quick: bool = False
    memory: bool = True
    folder: Path | None = None
    """Where to put temporary files; None for the system's folder."""

    @property
    def judged(self) -> bool:
        """Whether the bars apply to these sizes."""
        return self.sizes == Sizes()


class Missing(Exception):
    """An entry cannot be measured here; the message says why."""


class Anew:
    """A loader that is created again for each epoch, with its dataset: each epoch is the first one."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Any]:
        return iter(self._make())


@dataclass(frozen=True)
class BenchEntry:
    """A way to load: `make(data)` returns the loader, or raises Missing."""

    name: str
    kind: Kind
    make: Callable[[Any], Any]
    bars: tuple[Bar, ...] = ()
    same_batches: bool = True
    """With the same seed it gives the batches that stock gives; checked for ours."""
    afresh: bool = False
    """It is created for each measurement and dropped: a mapped file cannot leave the page cache."""
    limit: str | None = None
    """Name of the limit it is compared with; None: the part's first limit."""
    rival: str | None = None
    """Name of an entry that must not be faster: the same dataset in torch's loader."""
    read_directly: Callable[[Any], Sequence[Path]] | None = None
    """The files that it reads past the page cache, which must not contain them afterwards."""


@dataclass(frozen=True)
class PartPlan:
    """`prepare` creates the data, or finds it in the folder from before; stock is the first entry."""

    letter: str
    name: str
    title: Callable[[Sizes], str]
    prepare: Callable[[Sizes, Path], Any]
    entries: tuple[BenchEntry, ...]
    before: Callable[[Any], None] | None = None
    """Called with the data before each measurement."""
    skip: int = 0
    """Batches taken before the clock starts: workers start and fill their queues. If any, the clock stops at
    the last batch, before workers end."""
    pairs: int = 0
    """Times that stock and an entry take turns in a round, for differences of a few percent."""
    memory: bool = False
    """Whether memory besides the data is measured."""
    batch_samples: Callable[[Sizes], int] | None = None
    """Samples in a batch, for tables that show samples per second and CPU time per sample."""


def ours(name: str, make: Callable[[Any], Any], *bars: Bar, **options: Any) -> BenchEntry:
    """An entry of unstarve."""
    return BenchEntry(name, Kind.OURS, make, bars, **options)


def stock(make: Callable[[Any], Any], name: str = "torch.utils.data.DataLoader") -> BenchEntry:
    """The entry that all others are compared with."""
    return BenchEntry(name, Kind.STOCK, make)


def faster(times: float) -> Bar:
    """A bar: at least `times` as fast as stock."""
    return Bar(Promise.SPEEDUP, times)


def public(name: str) -> Any:
    """Return a public name of unstarve; raise Missing if it is not available."""
    import unstarve

    try:
        return getattr(unstarve, name)
    except (AttributeError, ImportError):
        raise Missing("not available") from None
