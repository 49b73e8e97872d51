"""Which file a slow sample was read from: by the dataset's list of files, or by the file opened for it."""

from __future__ import annotations

import heapq
import os
from collections.abc import Sequence
from typing import Any

from torch.utils.data import Subset

_LISTS = (
    "samples",
    "imgs",
    "images",
    "image_paths",
    "img_paths",
    "image_files",
    "paths",
    "files",
    "file_paths",
    "filepaths",
    "filenames",
    "file_names",
    "file_list",
    "items",
    "_samples",
    "_paths",
    "_files",
)
"""Attributes in which datasets keep one entry per sample: a path, or a tuple that begins with one."""
_KEPT = 10
_STANDS_OUT = 2.0
"""Times the typical slowest sample of a batch; analysis asks for more, with all batches at hand."""
_GROWTH = 1.05
_MOST_NESTED = 8


class SlowestSamples:
    """Decides which samples are worth naming: a handful at first, later only slower ones."""

    def __init__(self) -> None:
        self._typical_ns = float("inf")
        self._slowest: list[int] = []

    def is_one(self, slow_ns: int) -> bool:
        """Whether the slowest sample of a batch is among the slowest so far and stands out."""
        stands_out = slow_ns > _STANDS_OUT * self._typical_ns
        self._typical_ns = min(self._typical_ns * _GROWTH, slow_ns)
        if not stands_out or (len(self._slowest) == _KEPT and slow_ns <= self._slowest[0]):
            return False
        heapq.heappush(self._slowest, slow_ns)
        if len(self._slowest) > _KEPT:
            heapq.heappop(self._slowest)
        return True


def sample_file(dataset: Any, index: Any, opened: str | None) -> str | None:
    """The file of ``dataset[index]``; `opened` is the last file that was opened for it. None if unknown."""
    try:
        return _listed(dataset, index) or opened
    except Exception:  # foreign objects may raise anything; the sample then keeps its index alone
        return None


def _listed(dataset: Any, index: Any) -> str | None:
    for _ in range(_MOST_NESTED):
        if not isinstance(dataset, Subset):
            break
        dataset, index = dataset.dataset, dataset.indices[index]
    # Attributes of the object alone: a property may be dear.
    own = getattr(dataset, "__dict__", {})
    for entries in (own[name] for name in _LISTS if name in own):
        if isinstance(entries, Sequence) and not isinstance(entries, str) and len(entries) == len(dataset):
            entry = entries[index]
            path = entry[0] if isinstance(entry, (tuple, list)) and entry else entry
            if isinstance(path, (str, os.PathLike)) and (text := os.fsdecode(path)):
                return text
    return None
