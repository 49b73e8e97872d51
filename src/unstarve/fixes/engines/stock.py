"""torch's own iterators: right for everything, and what every other engine is measured against."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader

from unstarve.fixes.engines.epoch import InMemoryIter

ORIGINAL = "_unstarve_original"
"""On a function that stands in for torch's `DataLoader.__iter__`: torch's."""


def why_not(loader: DataLoader[Any]) -> str | None:
    """Nothing is refused."""
    return None


def why(loader: DataLoader[Any]) -> str:
    """Say why nothing else was taken."""
    return "no other engine gives the same batches faster here"


def iterate(loader: DataLoader[Any]) -> Iterator[Any]:
    """Return what torch's own loader iterates with."""
    if isinstance(loader._iterator, InMemoryIter):
        loader._iterator = None  # torch would take it for its own, with persistent workers behind it
    replaced: Any = DataLoader.__iter__
    torch_iter: Callable[[DataLoader[Any]], Iterator[Any]] = getattr(replaced, ORIGINAL, replaced)
    return torch_iter(loader)
