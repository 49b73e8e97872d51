"""An epoch's indices, in the sampler's order, for whoever makes the next batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader


class Stream:
    """Indices that were taken and not used can be given back: they are the next ones again."""

    def __init__(self, source: Iterator[Any]) -> None:
        self._source = source
        self._returned: deque[Any] = deque()
        self._noted: list[Any] | None = None
        self.batches = 0
        self.samples = 0
        """In `batches`; a batch that is not a list of indices counts as one."""

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Any:
        if self._returned:
            indices = self._returned.popleft()
        else:
            indices = next(self._source)
            self.batches += 1
            self.samples += len(indices) if hasattr(indices, "__len__") else 1
        if self._noted is not None:
            self._noted.append(indices)
        return indices

    def look_ahead(self) -> None:
        """Let the sampler draw what it draws for an epoch's first batch."""
        first = next(self, None)
        if first is not None:
            self.give_back([first])

    def give_back(self, indices: Iterable[Any]) -> None:
        """Put these in front, in their order."""
        self._returned.extendleft(reversed(list(indices)))

    def note(self) -> None:
        """From here on remember what is taken, until `undo` or `forget`."""
        self._noted = []

    def undo(self) -> None:
        """All that was taken since `note` is there again."""
        noted, self._noted = self._noted or [], None
        self.give_back(noted)

    def forget(self) -> None:
        """What was taken since `note` is used."""
        self._noted = None


class Seeds:
    """What the workers of one crew after the other are seeded with: torch's own draw, then others from it."""

    def __init__(self, base_seed: int) -> None:
        self._base: int | None = base_seed
        self._more = torch.Generator().manual_seed(base_seed)

    def __next__(self) -> int:
        if self._base is not None:
            base, self._base = self._base, None
            return base
        return _draw(self._more)


def begin(loader: DataLoader[Any], seeds: Seeds | None) -> tuple[Stream, Seeds]:
    """Begin an epoch as torch's loader would under the user's own settings, with the same draws.

    `seeds` are those of the epoch before where workers are persistent: they are drawn once.
    """
    source = iter(loader._index_sampler)
    if seeds is None:
        seeds = Seeds(_draw(loader.generator))
        if loader.num_workers > 0:
            source = iter(loader._index_sampler)  # where torch makes workers it begins twice
    return Stream(source), seeds


def _draw(generator: torch.Generator | None) -> int:
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())
