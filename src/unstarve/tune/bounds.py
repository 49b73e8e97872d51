"""Which settings a search may ask for."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from unstarve.model import LoaderSettings
from unstarve.model.parts import CACHED, GATHER

_FEWEST_AHEAD, _MOST_AHEAD = 2, 4
"""As many threads as the user has workers, which then draw the same random numbers, where threads share each
batch: more would only hold more batches in memory."""


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """What limits the number of workers."""

    cores: float
    max_workers: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which settings a search may ask for."""

    limits: WorkerLimits
    fits: Callable[[LoaderSettings], bool] = lambda settings: True
    """Whether there is memory for a setting."""
    workers: bool = True
    """The number of workers may change."""
    no_workers: bool = True
    """It may become 0 if the user has some."""
    several_workers: bool = True
    """It may become more than 1 if the user has at most one."""
    parts: Collection[str] = ()
    """Parts of unstarve that may be used."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Other parts, and why they may not."""
    epoch: Callable[[], int | None] = lambda: None
    """Batches in an epoch, if known."""
    prepare: Callable[[str], str | None] = lambda part: None
    """Get ready for a part; the answer says why it cannot be used after all."""

    def setting(self, count: int, kind: LoaderSettings, own: LoaderSettings) -> LoaderSettings | None:
        """This many workers of a kind, or as many as are allowed; None if none are."""
        if count <= 0 or kind.part == GATHER:
            possible = kind.part in ("", GATHER, CACHED) and (self.no_workers or own.num_workers == 0)
            return LoaderSettings(0, part=kind.part) if possible else None
        if kind.shared:
            count = min(max(own.num_workers, _FEWEST_AHEAD), _MOST_AHEAD)
        count = min(count, self.limits.max_workers)
        if not self.several_workers and own.num_workers <= 1:
            count = 1
        settings = replace(kind, num_workers=count)
        while settings.num_workers > 0 and not self.fits(settings):
            settings = replace(settings, num_workers=settings.num_workers * 3 // 4)
        return settings if settings.num_workers > 0 else None


def more(count: int, *, wide: bool) -> int:
    """The next higher number of workers to try; `wide`: nothing is known of those in between."""
    if wide:
        return max(2 * count, 2)
    return count + 1 if count < 3 else math.ceil(count * 1.5)


def fewer(count: int, *, wide: bool) -> int:
    """The next lower one."""
    if wide and count > 3:
        return count // 2
    return count - 1 if count <= 3 else count * 2 // 3
