"""What the crews of an epoch share: one stream of indices, seeds for their workers, a view of the loader."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

from unstarve.marks import SITE
from unstarve.model import LoaderSettings

MAX_DEPTH = 8
"""Most batches per worker that may be in flight, unless the user's own setting is higher."""


class IndexStream:
    """An epoch's indices in the sampler's order. Indices that were taken but not used can be given back."""

    def __init__(self, source: Iterator[Any]) -> None:
        self._source = source
        self._returned: deque[Any] = deque()
        self._taken: list[Any] | None = None
        self.asked = 0
        """Batches that the sampler was asked for, also in vain at its end."""
        self.batches = 0
        self.samples = 0
        """In `batches`; a batch that is not a list of indices counts as one sample."""

    def __iter__(self) -> IndexStream:
        return self

    def __next__(self) -> Any:
        if self._returned:
            indices = self._returned.popleft()
        else:
            self.asked += 1
            indices = next(self._source)
            self.batches += 1
            self.samples += len(indices) if hasattr(indices, "__len__") else 1
        if self._taken is not None:
            self._taken.append(indices)
        return indices

    def look_ahead(self) -> None:
        """Let the sampler make its random draws for the epoch's first batch."""
        first = next(self, None)
        if first is not None:
            self.give_back([first])

    def give_back(self, indices: Iterable[Any]) -> None:
        """Make these the next ones again, in their order."""
        self._returned.extendleft(reversed(list(indices)))

    def begin_taking(self) -> None:
        """Remember what is taken until `undo_taking` or `keep_taken`."""
        self._taken = []

    def undo_taking(self) -> None:
        """Give back everything taken since `begin_taking`."""
        taken, self._taken = self._taken or [], None
        self.give_back(taken)

    def keep_taken(self) -> None:
        """What was taken since `begin_taking` is in use."""
        self._taken = None


class Seeds:
    """Base seeds for the workers of one crew after another: torch's own draw first, then others from it."""

    def __init__(self, base_seed: int) -> None:
        self._base: int | None = base_seed
        self._more = torch.Generator().manual_seed(base_seed)

    def __next__(self) -> int:
        if self._base is not None:
            base, self._base = self._base, None
            return base
        return _draw(self._more)


def begin_stream(loader: DataLoader[Any], seeds: Seeds | None) -> tuple[IndexStream, Seeds]:
    """Begin an epoch with the random draws that torch's loader would make under the user's own settings.

    With persistent workers, which torch seeds only once, pass the `seeds` of the previous epoch.
    """
    source = iter(loader._index_sampler)
    if seeds is None:
        seeds = Seeds(_draw(loader.generator))
        if loader.num_workers > 0:
            source = iter(loader._index_sampler)  # torch does so twice when it starts workers
    return IndexStream(source), seeds


def _draw(generator: torch.Generator | None) -> int:
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


class LoaderView:
    """A loader as one crew sees it: with the crew's settings, and the stream as its sampler."""

    def __init__(self, loader: Any, stream: IndexStream, settings: LoaderSettings) -> None:
        self._loader = loader
        self._index_sampler = stream
        self.num_workers = settings.num_workers
        self.prefetch_factor = settings.prefetch_factor and max(settings.prefetch_factor, MAX_DEPTH)
        self.persistent_workers = loader.persistent_workers and settings.num_workers > 0
        self.generator = torch.Generator()  # torch draws a seed here; the user's generator must not notice
        site = vars(loader).get(SITE)
        if site is not None:
            self.__dict__[SITE] = site

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
