"""An order that is random enough to train with and sequential enough for slow storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Sampler

from unstarve.errors import UsageError

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Itinerary:
    """An epoch's order of chunks: `groups` of chunk numbers, visited one after the other."""

    count: int
    chunk: int
    groups: tuple[Numbers, ...]

    def samples(self, group: int) -> Numbers:
        """All samples of a group, chunk after chunk."""
        chunks = self.groups[group]
        every = (chunks[:, np.newaxis] * self.chunk + np.arange(self.chunk)).reshape(-1)
        return every[every < self.count]


class ChunkShuffleSampler(Sampler[int]):
    """Every index once, in chunks of neighbours: chunks in random order, samples shuffled within a window.

    `chunk` samples in a row are read as one; `window` chunks are mixed with each other. An epoch draws one
    number from `generator` (torch's own where None), which decides its whole order. The larger the window,
    the closer to a full shuffle and the more memory a reader ahead needs.

    Works as ``sampler=`` of any loader, over any dataset in which neighbours lie together.
    """

    draws_at_once = True
    """An epoch's random numbers are settled with its first index: a loader may ask for the others early."""

    def __init__(
        self,
        source: Sized,
        chunk: int,
        window: int = 8,
        generator: torch.Generator | None = None,
        *,
        on_epoch: Callable[[Itinerary], None] | None = None,
    ) -> None:
        if chunk < 1 or window < 1:
            raise UsageError(f"chunk and window must be 1 or more, not {chunk} and {window}")
        self.source = source
        self.chunk = chunk
        self.window = window
        self.generator = generator
        self._on_epoch = on_epoch

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator()
        generator.manual_seed(
            int(torch.empty((), dtype=torch.int64).random_(generator=self.generator).item())
        )
        count = len(self.source)
        order = torch.randperm(-(-count // self.chunk), generator=generator).numpy()
        cuts = range(self.window, len(order), self.window)
        groups = tuple(np.split(order, cuts)) if len(order) else ()
        itinerary = Itinerary(count, self.chunk, groups)
        if self._on_epoch is not None:
            self._on_epoch(itinerary)
        for group in range(len(groups)):
            samples = itinerary.samples(group)
            yield from samples[torch.randperm(len(samples), generator=generator).numpy()].tolist()

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process tells nobody about its epochs."""
        return {**self.__dict__, "_on_epoch": None}
