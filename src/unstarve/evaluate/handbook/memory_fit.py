"""Does a setting fit into memory? Batches under way lie in shared memory, and a container may have little."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from unstarve.machine import available_bytes
from unstarve.model import LoaderArguments

_SHARED_MEMORY = Path("/dev/shm")
_USUAL_PREFETCH = 2
_USABLE = 0.5
"""Of what is free: others want some, too."""


def room_bytes(shared_memory: Path = _SHARED_MEMORY) -> int:
    """What batches under way may take, of shared memory and of memory at all."""
    free = available_bytes()
    try:
        found = os.statvfs(shared_memory)
        free = min(free, found.f_bavail * found.f_frsize)
    except OSError:  # macOS has no such folder
        pass
    return int(_USABLE * free)


def needed_bytes(setting: LoaderArguments, sample_bytes: int | None) -> int:
    """What is under way when all workers are ahead; 0 where a sample's size is not known."""
    depth = setting.prefetch_factor or _USUAL_PREFETCH
    return (sample_bytes or 0) * (setting.batch_size or 1) * (setting.num_workers * depth + 1)


def that_fit(
    settings: Sequence[LoaderArguments], sample_bytes: int | None, room: int
) -> tuple[list[LoaderArguments], list[LoaderArguments]]:
    """The settings that fit, the first of them whatever it takes; and those that do not."""
    fit = [one for one in settings if one is settings[0] or needed_bytes(one, sample_bytes) <= room]
    return fit, [one for one in settings if one not in fit]
