"""Remember which images could not be decoded, for all processes of a loader."""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import torch

from unstarve.marks import count_failed_images_with

_live: weakref.WeakSet[FailedImages] = weakref.WeakSet()
_deleted_count = [0]  # failures of datasets that no longer exist


class FailedImages:
    """One mark per image, in memory that worker processes share: an image that fails twice counts once."""

    def __init__(self, count: int) -> None:
        marks: Any = torch.zeros(count, dtype=torch.uint8)
        self._marks: torch.Tensor = marks.share_memory_()
        self._has_warned = False
        _live.add(self)
        weakref.finalize(self, _keep_count, self._marks).atexit = False

    def mark(self, index: int, reason: str, consequence: str) -> None:
        """Mark an image, and warn of the first one in each process."""
        self._marks[index] = 1
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"{reason}; on_error is set, so {consequence} (all such files: dataset.failed)",
                RuntimeWarning,
                stacklevel=2,
            )

    def indices(self) -> list[int]:
        """Return the marked images in order."""
        found: list[int] = self._marks.nonzero().flatten().tolist()
        return found

    def __len__(self) -> int:
        return int(self._marks.sum())


def _keep_count(marks: torch.Tensor) -> None:
    _deleted_count[0] += int(marks.sum())


count_failed_images_with(lambda: _deleted_count[0] + sum(map(len, _live)))
