"""Which settings a search may ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from unstarve.model import LoaderSettings


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
    images: bool = False
    """unstarve may read the images of an image folder."""
    ring: bool = False
    """Workers may hand batches over in reused shared memory."""

    def setting(self, count: int, kind: LoaderSettings, own: LoaderSettings) -> LoaderSettings | None:
        """This many workers of a kind, or as many as are allowed; None if none are."""
        if count <= 0 and kind.has_part:
            return None
        if count <= 0:
            return LoaderSettings(0) if self.no_workers or own.num_workers == 0 else None
        count = min(count, self.limits.max_workers)
        if not self.several_workers and own.num_workers <= 1:
            count = 1
        settings = replace(kind, num_workers=count)
        while settings.num_workers > 0 and not self.fits(settings):
            settings = replace(settings, num_workers=settings.num_workers * 3 // 4)
        return settings if settings.num_workers > 0 else None
