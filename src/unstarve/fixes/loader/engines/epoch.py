"""What begins with an epoch, and what an iterator of ours still shows of torch's.

torch's own base class begins each epoch: it warns about pinning, iterates the sampler and draws the seed for
workers, so that the same is drawn from the same generators, whatever the version of torch.
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

PROFILER: dict[str, Any] = vars(profiler)
"""Says under "_is_profiler_enabled" whether one runs now."""

Annotate = Callable[[], AbstractContextManager[Any]]


class InMemoryIter(torch_loader._BaseDataLoaderIter):
    """torch's side of an epoch; its batches come from one of our iterators."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self._batches: Iterator[Any] | None = None
        self._workers: list[Any] = []  # who asks for their processes finds that there are none
        if self._num_workers > 0:
            self._reset(loader, first_iter=True)  # where torch makes workers it begins twice

    def _next_data(self) -> Any:
        if self._batches is None:
            raise StopIteration
        return next(self._batches)


def begin(loader: DataLoader[Any]) -> InMemoryIter:
    """Begin an epoch. A loader with persistent workers draws a seed for them once; so it is done here."""
    if not loader.persistent_workers or loader.num_workers == 0:
        return InMemoryIter(loader)
    before = loader._iterator
    if isinstance(before, InMemoryIter):
        before._reset(loader)
        return before
    begun = InMemoryIter(loader if before is None else WithoutDraw(loader))
    loader._iterator = begun  # lets go of torch's workers, where an earlier epoch had some
    return begun


class WithoutDraw:
    """A loader whose worker seed was drawn in an earlier epoch: another is drawn where nobody sees it."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader = loader
        self.generator = torch.Generator()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def is_watched() -> bool:
    """Whether somebody, `unstarve run` for one, has replaced the method through which torch gives batches."""
    given: Any = torch_loader._BaseDataLoaderIter.__next__
    return getattr(given, "__globals__", None) is not vars(torch_loader)


def annotation(begun: InMemoryIter) -> Annotate | None:
    """Return what makes the mark that torch's loader puts around a batch in a profile.

    None where `begun` is what the user gets: it makes the mark itself.
    """
    if is_watched():
        return None
    return functools.partial(profiler.record_function, begun._profile_name)


def handed_out(begun: InMemoryIter, batches: Any) -> Iterator[Any]:
    """Return what the user iterates: our iterator, or torch's around it where somebody watches that."""
    if is_watched():
        begun._batches = batches
        return begun
    batches._begun = begun
    return batches  # type: ignore[no-any-return] # one of several classes that share only this


class Epoch:
    """Beside a class that gives batches: what else torch's iterators can be asked. Mixed into ours."""

    _begun: InMemoryIter
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
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled: iterate the loader again")


class PythonEpoch(Epoch):
    """One whose batches are made in Python, by `_advance`; a profile shows each with torch's mark."""

    _advance: Callable[[], Any]
    """Return the next batch, or raise StopIteration."""

    def __init__(self, annotate: Annotate | None) -> None:
        self.taken = 0
        self._annotate = annotate

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if self._annotate is not None and PROFILER.get("_is_profiler_enabled"):
            with self._annotate():
                batch = self._advance()
        else:
            batch = self._advance()
        self.taken += 1
        return batch
