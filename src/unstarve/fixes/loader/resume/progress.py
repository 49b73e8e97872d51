"""How far an epoch is: what its iterator counts, and what its loader reads when a state is saved.

The loader holds the progress of its last epoch, not the iterator: after a `break` the iterator and its
workers are gone, and the state can still be saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from unstarve.fixes.loader.resume.random_state import RandomState
from unstarve.stack_levels import uncounted

if TYPE_CHECKING:
    from torch.utils.data.dataloader import _BaseDataLoaderIter as _Iterator

    from unstarve.fixes.loader.resume.index_replay import NotedIndices
    from unstarve.fixes.loader.resume.worker_notes import WorkerNotes
else:
    _Iterator = object

Note = dict[str, Any]
"""Of one worker: "random" (its random streams), "dataset" and "iterator" (the states they save themselves).

"is_own": the dataset is its own iterator, and its state is the iterator's. "has_ended": an IterableDataset
has no more samples for this worker in this epoch. "failed": why there is no note.
"""


class Progress:
    """One epoch's progress. `start` returns the states that generators had just before it began."""

    def __init__(self, start: Callable[[], RandomState] = dict) -> None:
        self.start = start
        self.drew_seed = True
        """Whether a base seed for workers was drawn at its beginning; persistent workers keep theirs."""
        self.seed: int | None = None
        """The base seed of its workers."""
        self.given = 0
        """Batches that reached the user, or an exception in their place."""
        self.ended = False
        """Whether the user was told that there are no more."""
        self.untracked: str | None = None
        """Why nothing is counted here; None if it is."""
        self.asked_before = 0
        """For how many batches of indices the sampler was asked before this epoch was resumed."""
        self.next_worker = 0
        """Number of the worker that makes the batch after the last one given."""
        self.tasks = 0
        """Tasks of workers that are done with, in this iterator's numbering."""
        self.notes: WorkerNotes | None = None
        self.loaded: list[Note | None] | None = None
        """Notes of a loaded state: what this epoch's workers start from."""
        self.notes_before: list[Note | None] | None = None
        """The workers' notes when the epoch began; only of persistent workers, which do not begin anew."""
        self.streams: dict[int, Note] | None = None
        """Notes of threads that replace workers, by number; None: there are no such threads."""
        self.stream: Any = None
        """The shared index stream of a loader that is being tuned."""
        self.fetcher: Any = None
        """torch's fetcher, if batches are made in this process."""
        self.indices: NotedIndices | None = None
        """The indices of samplers that save their own state."""
        self.samplers_before: dict[str, Any] | None = None
        """Such samplers' states before the epoch; see `loader_state`."""


UNTRACKED = Progress()
"""For iterators of loaders without a state: torch's own, or crews of a tuned one. Written, never read."""


def progress_of(loader: Any) -> Progress:
    """Return the progress of the loader's newest epoch."""
    found = getattr(loader, "__dict__", {}).get("_progress")
    return found if isinstance(found, Progress) else UNTRACKED


def given_before(loader: Any) -> int:
    """Return how many batches of the epoch that begins now were given elsewhere."""
    progress = progress_of(loader)
    return 0 if progress is UNTRACKED else progress.given


class Tracked(_Iterator):
    """Mixin for iterators: counts into `progress`, and takes over the base seed of a loaded state."""

    progress: Progress = UNTRACKED

    @property
    def _base_seed(self) -> int:
        return self._own_seed

    @_base_seed.setter
    def _base_seed(self, drawn: int) -> None:
        self._own_seed = drawn if _kept_seed is None else _kept_seed


_kept_seed: int | None = None


@contextmanager
def keep_seed(loader: Any, seed: int | None) -> Iterator[None]:
    """Let iterators that begin in this block use `seed` and draw none from the loader's generator."""
    global _kept_seed
    generator, loader.generator = loader.generator, torch.Generator()
    _kept_seed = seed
    try:
        yield
    finally:
        loader.generator, _kept_seed = generator, None


class CountsBatches(Tracked):
    """Mixin for iterators that make a batch when they are asked for it."""

    @uncounted
    def __next__(self) -> Any:
        try:
            batch = super().__next__()
        except StopIteration:
            self.progress.ended = True
            raise
        except Exception:  # the dataset's own, raised on: its indices are used up
            self.progress.given += 1
            raise
        self.progress.given += 1
        return batch
