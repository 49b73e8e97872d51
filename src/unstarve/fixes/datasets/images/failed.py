"""Which images could not be decoded, known to all processes of a loader."""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import torch

from unstarve.marks import count_failed_images_with

_live: weakref.WeakSet[Failed] = weakref.WeakSet()
_gone = [0]


class Failed:
    """A mark per image, in memory that worker processes share, so that one marked twice counts once."""

    def __init__(self, count: int) -> None:
        marks: Any = torch.zeros(count, dtype=torch.uint8)
        self._marks: torch.Tensor = marks.share_memory_()
        self._has_warned = False
        _live.add(self)
        weakref.finalize(self, _remember, self._marks).atexit = False

    def note(self, index: int, reason: str, instead: str) -> None:
        """Mark an image; warns of the first in a process."""
        self._marks[index] = 1
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(f"{reason}; {instead}, as on_error says: see failed", RuntimeWarning, stacklevel=2)

    def indices(self) -> list[int]:
        """Return the marked ones in order."""
        found: list[int] = self._marks.nonzero().flatten().tolist()
        return found

    def __len__(self) -> int:
        return int(self._marks.sum())


def failed_images() -> int:
    """Return how many images of all datasets of this process could not be decoded so far."""
    return _gone[0] + sum(map(len, _live))


def _remember(marks: torch.Tensor) -> None:
    _gone[0] += int(marks.sum())


count_failed_images_with(failed_images)
