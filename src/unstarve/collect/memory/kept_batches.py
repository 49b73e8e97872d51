"""Whether batches stay in memory after their step: now and then, one is watched after its delivery.

A tensor from a worker lies in shared memory and holds a descriptor until the last reference to it is gone. A
weak reference to its storage also sees a view that was kept. It keeps no data alive, only torch's small
record of the storage. But that lies in the heap between the data, and would leave gaps that are too small for
another batch, so references to what is gone are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

_OLD = 8
"""Batches that were watched later: after that many, and at least that many steps, a batch should be gone."""
_MOST_WATCHED = 64
_MOST_PARTS = 4
"""Tensors of a batch."""

_Part = tuple[str, StorageWeakRef | None, int]
"""A tensor of a batch: its name, its storage unless that is gone, its bytes."""


class KeptBatches:
    """Watches the batches of one loader."""

    def __init__(self) -> None:
        self._watched: list[tuple[int, list[_Part]]] = []
        """Number of the batch, and its parts."""
        self._noted = 0
        self._every = 1
        """Of the noted batches, the number from one that is watched to the next."""
        self._most: dict[str, int] = {}

    def note(self, batch: Any) -> None:
        """A batch was delivered."""
        number = self._noted
        self._noted += 1
        if number % self._every:
            return
        watched = [
            (at, [part if _is_alive(part[1]) else (part[0], None, part[2]) for part in parts])
            for at, parts in self._watched
        ]
        alive = {ref.cdata for _, parts in watched for _, ref, _ in parts if ref is not None}
        # Rows of a tensor that the dataset holds share its storage: nobody keeps them, they are always there.
        watched.append(
            (number, [one for one in _parts(batch) if one[1] is None or one[1].cdata not in alive])
        )
        if len(watched) > _MOST_WATCHED:
            self._every *= 2
            watched = [one for one in watched if one[0] % self._every == 0]
        self._watched = watched  # in one go: another thread may be counting

    def new_most(self) -> list[tuple[str, int, int, int]] | None:
        """Name, number kept, number watched and bytes of each part; None unless more are kept than ever."""
        kept: dict[str, list[int]] = {}
        for number, parts in self._watched:
            if number < self._noted - _OLD:
                for name, ref, nbytes in parts:
                    counts = kept.setdefault(name, [0, 0, nbytes])
                    counts[0] += _is_alive(ref)
                    counts[1] += 1
        if all(counts[0] <= self._most.get(name, 0) for name, counts in kept.items()):
            return None
        self._most = {name: max(counts[0], self._most.get(name, 0)) for name, counts in kept.items()}
        return [(name, *counts) for name, counts in kept.items()]  # type: ignore[misc]  # three counts


class KeptByLoader:
    """The same for all loaders of a process."""

    def __init__(self) -> None:
        self._loaders: dict[int, KeptBatches] = {}

    def note(self, loader: int, batch: Any) -> None:
        """A loader has delivered a batch."""
        self._loaders.setdefault(loader, KeptBatches()).note(batch)

    def tell(self, meta: Callable[..., object]) -> None:
        """Write what is kept, where that is more than ever."""
        for loader, batches in list(self._loaders.items()):
            parts = batches.new_most()
            if parts is not None:
                meta("kept", loader=loader, parts=parts)


def _parts(batch: Any) -> list[_Part]:
    """The first tensors of a batch."""
    found: list[_Part] = []
    for name, value in _named(batch):
        if type(value) is torch.Tensor and value.layout is torch.strided and value.device.type == "cpu":
            storage = StorageWeakRef(value.untyped_storage())  # type: ignore[no-untyped-call]  # torch's
            found.append((name, storage, value.nbytes))
            if len(found) == _MOST_PARTS:
                break
    return found


def _is_alive(storage: StorageWeakRef | None) -> bool:
    return storage is not None and not storage.expired()  # type: ignore[no-untyped-call]  # torch's


def _named(batch: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(batch, Mapping):
        yield from ((f'batch["{key}"]', value) for key, value in batch.items())
    elif isinstance(batch, (list, tuple)):
        yield from ((f"batch[{place}]", value) for place, value in enumerate(batch))
    else:
        yield "batch", batch
