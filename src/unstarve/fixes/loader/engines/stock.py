"""torch's own iterators: right for everything, and what every other engine is measured against."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader

from unstarve.fixes.loader.engines.epoch import InMemoryIter
from unstarve.model.engine_names import ORIGINAL


def plan(loader: DataLoader[Any]) -> Callable[[], Iterator[Any]]:
    """Return what iterates as torch's own loader does: nothing is refused."""
    return functools.partial(_iterate, loader)


def why(loader: DataLoader[Any]) -> str:
    """Say why nothing else was taken."""
    return "no other engine gives the same batches faster here"


def _iterate(loader: DataLoader[Any]) -> Iterator[Any]:
    if isinstance(loader._iterator, InMemoryIter):
        loader._iterator = None  # torch would take it for its own, with persistent workers behind it
    replaced: Any = DataLoader.__iter__
    torch_iter: Callable[[DataLoader[Any]], Iterator[Any]] = getattr(replaced, ORIGINAL, replaced)
    return torch_iter(loader)
