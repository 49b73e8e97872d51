"""Crews of threads: unstarve reads an image folder, or a dataset of its own, in the training process."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from unstarve.errors import UsageError
from unstarve.fixes.datasets.images.crop_recipe import Decode
from unstarve.fixes.datasets.images.gpu_decoder import why_no_gpu
from unstarve.fixes.datasets.images.torchvision_folder import is_folder, stand_in_for
from unstarve.fixes.loader.engines import thread_engine
from unstarve.fixes.loader.engines.drawn_iterator import DrawnIterator
from unstarve.fixes.loader.engines.thread_iterator import ThreadIterator
from unstarve.fixes.loader.engines.thread_readers import STAND_IN, load_of, reader_of, source_of
from unstarve.model import LoaderSettings
from unstarve.model.parts import GPU_IMAGES, IMAGES, THREADS
from unstarve.tune.index_stream import IndexStream, LoaderView
from unstarve.words import size

_DECODERS: Mapping[str, Decode] = {IMAGES: "cpu", GPU_IMAGES: "cuda"}
_ROOM_BYTES = 4 << 30
"""Of the GPU's memory: decoded images, batches ahead and the decoder's buffers take one or two."""


class Pausable:
    """Mixin for a crew that takes indices ahead of training."""

    def pause(self: Any) -> None:
        """Take no more indices; pending batches are still delivered."""
        self._paused = True

    def resume(self: Any, loader: DataLoader[Any], stream: IndexStream, settings: LoaderSettings) -> None:
        """Take indices again; from another stream if another epoch has begun."""
        self._paused = False
        if stream is self.stream:
            self.set_depth(settings.prefetch_factor)
            return
        self.settings = settings
        self.stream = stream
        self._index_sampler = stream
        self._reset(loader)


class _ThreadView(LoaderView):
    """A loader whose batches threads make. Raises UsageError if its image folder cannot be read."""

    def __init__(
        self, loader: DataLoader[Any], stream: IndexStream, settings: LoaderSettings, seed: int
    ) -> None:
        super().__init__(loader, stream, settings)
        self.prefetch_factor = settings.prefetch_factor
        self.generator = torch.Generator().manual_seed(seed)
        if settings.part in _DECODERS:
            setattr(self, STAND_IN, stand_in_for(loader.dataset, _DECODERS[settings.part]))


def why_no_image_crew(loader: DataLoader[Any]) -> str | None:
    """Say why unstarve cannot read the images of this loader: empty if the dataset is no image folder."""
    return _why_no_threads(loader, IMAGES) if is_folder(loader.dataset) else ""


def why_no_gpu_crew(loader: DataLoader[Any]) -> str | None:
    """Say why the GPU cannot decode them: empty if the dataset is no image folder, or training uses no GPU.

    CUDA is not initialized for it.
    """
    if not is_folder(loader.dataset) or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch's
        return ""
    return why_no_gpu() or _why_no_room() or _why_no_threads(loader, GPU_IMAGES)


def _why_no_room() -> str | None:
    """Training may need the GPU's memory later: decoding must not take the last of it."""
    free_bytes, _ = torch.cuda.mem_get_info()
    return None if free_bytes >= _ROOM_BYTES else f"only {size(free_bytes)} of its memory is free"


def why_no_thread_crew(loader: DataLoader[Any]) -> str | None:
    """Say why threads cannot read this loader's dataset: empty if it holds the GIL, as most do."""
    return "" if reader_of(source_of(loader)) is None else _why_no_threads(loader, THREADS)


def _why_no_threads(loader: DataLoader[Any], part: str) -> str | None:
    try:
        view: Any = _ThreadView(loader, IndexStream(iter(())), LoaderSettings(1, 1, part), 0)
        return thread_engine.why_no_threads(view)
    except UsageError as error:
        return str(error)


if TYPE_CHECKING:
    _Threads = ThreadIterator
else:
    _Threads = object


class _ReadingCrew(Pausable, _Threads):
    """Mixin for an iterator of the threads engine."""

    pids: tuple[int, ...] = ()
    lost_workers = False

    def __init__(
        self, loader: DataLoader[Any], stream: IndexStream, settings: LoaderSettings, seed: int
    ) -> None:
        self.settings = settings
        self.stream = stream
        self._paused = False
        self._sent: deque[Any] = deque()
        super().__init__(_ThreadView(loader, stream, settings, seed))

    @property
    def ready(self) -> int:
        """At most this many of the pending batches are finished."""
        return min(self.pending, self._reading.ready)

    def ignore_worker_deaths(self) -> None:
        """Threads do not die."""

    def set_depth(self, depth: int | None) -> None:
        """Keep this many batches per thread in flight from now on."""
        self.settings = replace(self.settings, prefetch_factor=depth)
        self._most_ahead = self.settings.in_flight
        self._read_ahead()

    def resume(self, loader: DataLoader[Any], stream: IndexStream, settings: LoaderSettings) -> None:
        """Take indices again; from another stream if another epoch has begun."""
        self._most_ahead = settings.in_flight
        super().resume(loader, stream, settings)

    def undelivered(self) -> list[Any]:
        """Return the indices of a batch that failed, then of pending ones, in order."""
        return list(self._sent)

    def close(self) -> None:
        """Stop the threads and drop their batches."""
        self._reading.close()

    # --- called by the engine ---

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self._sent.clear()
        super()._reset(loader, first_iter)

    def _next_index(self) -> Any:
        if self._paused:
            raise StopIteration
        indices = super()._next_index()  # type: ignore[no-untyped-call]  # untyped in torch
        self._sent.append(indices)
        return indices

    def _take(self) -> Any:
        batch = super()._take()
        self._sent.popleft()
        return batch


class DrawnCrew(_ReadingCrew, DrawnIterator):
    """Threads that share each batch, as for images.

    Files, order and targets of an image folder are the dataset's own. Random crops are drawn from other
    generators, and pixels differ as between any two decoders.
    """


class ReaderCrew(_ReadingCrew, ThreadIterator):
    """Threads that make a batch each."""


def make_thread_crew(
    loader: DataLoader[Any], stream: IndexStream, settings: LoaderSettings, seed: int
) -> DrawnCrew | ReaderCrew:
    """Start threads; they take the first indices at once."""
    shared = settings.part in _DECODERS or load_of(source_of(loader)) is not None
    return (DrawnCrew if shared else ReaderCrew)(loader, stream, settings, seed)
