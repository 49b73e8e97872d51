"""What unstarve leaves on the loaders of a script, for whoever records and describes them.

Those who leave a mark (`fixes`, `steer`, `launch`) and those who read it (`collect`, `tune`) do not import
each other: they meet here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SITE = "_unstarve_site"
"""Attribute of a loader: file and line that created it, and more (`collect.loader_origin.Origin`)."""

RUNS_ON = "_unstarve_engine"
"""Attribute of a loader of torch: name of the engine that ran its last epoch."""

APPLIED = "_unstarve_applied"
"""Attribute of a loader: number of the saved entry that was applied to it, and what it changed, in words."""

WATCHED = "_unstarve_watched"
"""Attribute of what `unstarve.watch` returns: the iterable that it was given."""


class ChoosesEngine:
    """Base of loaders that choose one of unstarve's engines themselves."""

    @property
    def engine(self) -> str:
        """Name of the engine that would run an epoch that begins now."""
        raise NotImplementedError


class PullableIndices:
    """Base of iterators whose sampler may be asked early, as torch's own without workers may."""


class PacksItself:
    """Base of queues that pickle an item in ``put``, where multiprocessing's leave it to a thread."""

    when_packed: Callable[[Any], None] | None = None
    """Called with every item that is packed and about to be sent."""


_failed_images: list[Callable[[], int]] = []


def count_failed_images_with(count: Callable[[], int]) -> None:
    """Register a function that tells how many images of this process could not be decoded so far."""
    _failed_images.append(count)


def failed_images() -> int:
    """Images of this process that could not be decoded so far, by all registered functions."""
    return sum(count() for count in _failed_images)
