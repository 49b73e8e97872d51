"""Images of an image folder, read by unstarve while training goes on: threads instead of workers.

Files, order and targets are the dataset's own; what is random is drawn from other generators, and pixels
differ as two decoders do.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch.utils.data import DataLoader

from unstarve.errors import UsageError
from unstarve.fixes.datasets.images.torchvision_folder import is_folder, stand_in_for
from unstarve.fixes.loader.engines import thread_engine
from unstarve.model import LoaderSettings
from unstarve.tune.seen import Seen
from unstarve.tune.stream import Stream

_PROBE = LoaderSettings(1, 1, images=True)


def why_not(loader: DataLoader[Any]) -> str | None:
    """Say why unstarve cannot read the images of this loader: empty where it has no image folder."""
    if not is_folder(loader.dataset):
        return ""
    try:
        return thread_engine.why_no_threads(_SeenImages(loader, Stream(iter(())), _PROBE, 0))  # type: ignore[arg-type] # as a crew sees it
    except UsageError as error:
        return str(error)


class _SeenImages(Seen):
    """A loader whose image folder unstarve reads. Raises UsageError where it cannot."""

    def __init__(self, loader: DataLoader[Any], stream: Stream, settings: LoaderSettings, seed: int) -> None:
        super().__init__(loader, stream, settings)
        self.prefetch_factor = settings.prefetch_factor
        self.generator = torch.Generator().manual_seed(seed)
        setattr(self, thread_engine.STAND_IN, stand_in_for(loader.dataset))


class ImageCrew(thread_engine.ThreadIterator):
    """Threads that make batches in the place of workers."""

    pids: tuple[int, ...] = ()
    lost_workers = False

    def __init__(self, loader: DataLoader[Any], stream: Stream, settings: LoaderSettings, seed: int) -> None:
        self.settings = settings
        self.stream = stream
        self._held = False
        self._handed: deque[Any] = deque()
        super().__init__(_SeenImages(loader, stream, settings, seed))

    @property
    def pending(self) -> int:
        """Batches whose indices were taken and that were not handed out yet."""
        return self._reading.coming

    @property
    def ready(self) -> int:
        """How many of them wait to be handed out, at most."""
        return min(self.pending, self._reading.ready)

    def die_quietly(self) -> None:
        """Threads do not die."""

    def set_depth(self, depth: int | None) -> None:
        """Let so many batches per thread be under way from now on."""
        self.settings = LoaderSettings(self.settings.num_workers, depth, images=True)
        self._most_ahead = self.settings.in_flight
        self._read_ahead()

    def hold(self) -> None:
        """Take no more indices; what is under way is still to be handed out."""
        self._held = True

    def go_on(self, loader: DataLoader[Any], stream: Stream, settings: LoaderSettings) -> None:
        """Take indices again; of another stream, where another epoch has begun."""
        self._held = False
        if stream is self.stream:
            self.set_depth(settings.prefetch_factor)
            return
        self.settings = settings
        self.stream = stream
        self._index_sampler = stream
        self._most_ahead = settings.in_flight
        self._reset(loader)

    def undelivered(self) -> list[Any]:
        """Return the indices of what is pending, in order, and before them of what could not be made."""
        return list(self._handed)

    def close(self) -> None:
        """Let the threads end, and drop what they have made."""
        self._reading.close()

    # --- what the engine calls ---

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self._handed.clear()
        super()._reset(loader, first_iter)

    def _next_index(self) -> Any:
        if self._held:
            raise StopIteration
        indices = super()._next_index()  # type: ignore[no-untyped-call]  # as torch has it
        self._handed.append(indices)
        return indices

    def _take(self) -> Any:
        batch = super()._take()
        self._handed.popleft()
        return batch
