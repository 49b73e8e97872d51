"""Starting an epoch as torch does, and exposing what torch's iterators expose.

torch's own base class starts each epoch: it warns about pinning, iterates the sampler and draws the seed for
workers, so the same numbers are drawn from the same generators with every version of torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Self

import torch
from torch.autograd import profiler
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as torch_loader

from unstarve.fixes.loader.resume.progress import UNTRACKED, CountsBatches, Progress
from unstarve.stack_levels import uncounted

PROFILER: dict[str, Any] = vars(profiler)
"""Its "_is_profiler_enabled" says whether a profiler is running."""

Annotate = Callable[[], AbstractContextManager[Any]]


class BegunEpoch(CountsBatches, torch_loader._BaseDataLoaderIter):
    """torch's side of an epoch that has begun; its batches come from one of our iterators."""

    @uncounted
    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self._batches: Iterator[Any] | None = None
        self._workers: list[Any] = []  # anyone who asks for worker processes finds none
        if self._num_workers > 0:
            self._reset(loader, first_iter=True)  # with workers torch resets once more at the start

    def _next_data(self) -> Any:
        if self._batches is None:
            raise StopIteration
        return next(self._batches)


@uncounted
def begin(loader: DataLoader[Any]) -> BegunEpoch:
    """Begin an epoch. As in torch, a loader with persistent workers draws a seed for them only once."""
    if not loader.persistent_workers or loader.num_workers == 0:
        return BegunEpoch(loader)
    before = loader._iterator
    if isinstance(before, BegunEpoch):
        before._reset(loader)
        return before
    begun = BegunEpoch(loader if before is None else LoaderWithoutDraw(loader))
    loader._iterator = begun  # releases torch's workers, if an earlier epoch had some
    return begun


class LoaderWithoutDraw:
    """A loader whose worker seed was drawn in an earlier epoch: torch gets a throwaway generator."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader = loader
        self.generator = torch.Generator()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def is_watched() -> bool:
    """Whether the method through which torch gives batches was replaced, for example by `unstarve run`."""
    given: Any = torch_loader._BaseDataLoaderIter.__next__
    return getattr(given, "__globals__", None) is not vars(torch_loader)


class MarkedInProfiles(torch_loader._BaseDataLoaderIter):
    """Marks a batch in a profile as torch's iterators do, but only while there is a profiler.

    The mark takes longer than all else that they do for a batch.
    """

    _next_data: Callable[[], Any]

    def __next__(self) -> Any:  # its frame is counted in the place of torch's own
        if PROFILER.get("_is_profiler_enabled") or is_watched():
            return super().__next__()
        batch = self._next_data()
        self._num_yielded += 1
        return batch


def annotation(begun: BegunEpoch) -> Annotate | None:
    """Return the context that marks a batch in a profile, as torch's loader does.

    None if the user gets `begun` itself, which makes the mark.
    """
    if is_watched():
        return None
    return functools.partial(profiler.record_function, begun._profile_name)


def handed_out(begun: BegunEpoch, batches: Any) -> Iterator[Any]:
    """Return what the user iterates: our iterator, or torch's around it if torch's is watched."""
    if is_watched():
        begun._batches = batches
        return begun
    batches._begun = begun
    return batches  # type: ignore[no-any-return] # one of several classes that share only this


class EpochIterator:
    """A mixin for our iterators: everything that torch's iterators offer besides batches."""

    _begun: BegunEpoch
    progress: Progress = UNTRACKED
    taken: int
    """Batches given so far."""

    @property
    def _num_yielded(self) -> int:
        return self.taken

    def __len__(self) -> int:
        return len(self._begun)

    def __getattr__(self, name: str) -> Any:
        if name == "_begun":
            raise AttributeError(name)
        return getattr(self._begun, name)

    def __reduce__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled; iterate the loader again")


class PythonEpochIterator(EpochIterator):
    """An iterator whose batches are made in Python by `_advance`; a profile shows each with torch's mark."""

    _advance: Callable[[], Any]
    """Return the next batch, or raise StopIteration."""

    def __init__(self, annotate: Annotate | None) -> None:
        self.taken = 0
        self._annotate = annotate

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            if self._annotate is not None and PROFILER.get("_is_profiler_enabled"):
                with self._annotate():
                    batch = self._advance()
            else:
                batch = self._advance()
        except StopIteration:
            self.progress.ended = True
            raise
        except Exception:  # the dataset's own, raised on: its indices are used up
            self.progress.given += 1
            raise
        self.taken += 1
        self.progress.given += 1
        return batch
