"""Begin an epoch: a new one, or the rest of the one that a loaded state describes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from unstarve.fixes.loader.resume.index_replay import NotedIndices, ReplayedIndices
from unstarve.fixes.loader.resume.loader_state import is_replayed
from unstarve.fixes.loader.resume.progress import Note, Progress, keep_seed
from unstarve.fixes.loader.resume.protocol import (
    any_is_stateful,
    is_stateful,
    load_sampler_states,
    sampler_states,
    samplers_of,
)
from unstarve.fixes.loader.resume.random_state import Rewound, index_state
from unstarve.stack_levels import uncounted

Begin = Callable[[], Iterator[Any]]


class Seeding:
    """Whether an epoch draws a base seed for its workers.

    torch draws one at each start of workers: in every epoch, or once for persistent ones. After a state was
    loaded, the loader goes on as the one that saved it, whatever its own workers are.
    """

    def __init__(self, *, once: bool, seed: int | None = None) -> None:
        self.once = once
        self.seed = seed
        """The base seed that was drawn; None: none yet."""

    def draws(self) -> bool:
        """Whether the next epoch draws a seed."""
        return not self.once or self.seed is None


def sampler_now(loader: Any) -> Any:
    """Return what the loader's `_index_sampler` is: torch's, or one that knows where to resume."""
    plain = torch_index_sampler(loader)
    indices = loader.__dict__.get("_indices")
    if indices is not None and indices.sampler is plain:
        return indices
    return plain


def torch_index_sampler(loader: Any) -> Any:
    """Return the index sampler of torch's own loader."""
    return DataLoader._index_sampler.fget(loader)  # type: ignore[attr-defined]  # a property


index_sampler = property(sampler_now)
"""`_index_sampler` of loaders with a state: the one place that decides which indices an epoch has."""


@uncounted
def begin_epoch(loader: Any, begin: Begin) -> Iterator[Any]:
    """Return an iterator over the next epoch, made by `begin`; it counts into the loader's progress."""
    state, loader._loaded = loader._loaded, None
    before: Progress | None = loader._progress
    samplers = samplers_of(loader)
    if any_is_stateful(samplers) and not isinstance(loader._indices, NotedIndices):
        loader._indices = NotedIndices(loader, torch_index_sampler(loader))
    if state is not None and state["epoch"] is not None:
        return _resume(loader, begin, state)
    progress = Progress(index_state(loader, samplers))
    if isinstance(loader._indices, NotedIndices):
        progress.indices = loader._indices
        ended = before is not None and before.ended
        progress.samplers_before = {"ended": ended, "states": sampler_states(loader)}
    if state is not None:
        progress.loaded = _between_epochs(_notes_for(loader, state)) if state["persistent"] else None
        _load_dataset(loader, state)
    loader._progress = progress
    iterator = _seeded(loader, begin, progress)
    _load_iterator(progress, state)
    return iterator


@uncounted
def _resume(loader: Any, begin: Begin, state: dict[str, Any]) -> Iterator[Any]:
    epoch = state["epoch"]
    replayed = is_replayed(loader, state)
    progress = loader._progress = Progress(lambda: epoch["random"])
    if replayed:
        progress.loaded = _between_epochs(epoch["notes"])
    else:
        progress.given = epoch["given"]
        progress.loaded = _notes_for(loader, state)
        if state["workers"] == loader.num_workers:
            progress.next_worker = epoch["next_worker"]
        _load_dataset(loader, state)
    if not isinstance(loader.dataset, IterableDataset):
        _set_indices(loader, progress, state)
    with Rewound(loader, epoch["random"]) as rewound:
        if loader._indices is not None:
            loader._indices.caught_up = rewound.end
        if progress.indices is not None and epoch["given"]:
            load_sampler_states(loader, state["samplers"]["states"])
        iterator = _seeded(loader, begin, progress, drew_seed=epoch["drew_seed"])
        if loader._indices is not None:
            loader._indices.settle()
        if replayed:
            for _ in range(epoch["given"]):
                next(iterator)
    if isinstance(loader._indices, ReplayedIndices):
        loader._indices = None
    _load_iterator(progress, None if replayed else state)
    return iterator


def _set_indices(loader: Any, progress: Progress, state: dict[str, Any]) -> None:
    """Let the loader's index sampler give the rest of the epoch."""
    epoch = state["epoch"]
    if isinstance(loader._indices, NotedIndices):
        progress.indices = loader._indices
        progress.samplers_before = state["samplers"]
        loader._indices.begin_at(epoch["given"])
        return
    progress.asked_before = epoch["asked"]
    loader._indices = ReplayedIndices(torch_index_sampler(loader), epoch["given"], epoch["asked"])


@uncounted
def _seeded(loader: Any, begin: Begin, progress: Progress, drew_seed: bool | None = None) -> Iterator[Any]:
    """Begin an epoch and draw the base seed of its workers, or not, as the uninterrupted run would."""
    seeding: Seeding = loader._seeding
    progress.drew_seed = seeding.draws() if drew_seed is None else drew_seed
    kept = loader.persistent_workers and loader._iterator is not None
    if progress.drew_seed and kept:
        torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
    no_draw = not progress.drew_seed and not kept
    with keep_seed(loader, seeding.seed) if no_draw else nullcontext():
        iterator = begin()
    if hasattr(type(iterator), "progress"):
        iterator.progress = progress  # type: ignore[attr-defined]  # checked above
    else:
        progress.untracked = f"{type(loader).__name__} makes its own iterators"
    progress.seed = seeding.seed = getattr(iterator, "_base_seed", seeding.seed)
    progress.notes = getattr(iterator, "notes", None)
    if progress.notes is not None and loader.persistent_workers:
        progress.notes_before = progress.notes.after(0)
    progress.fetcher = getattr(iterator, "_dataset_fetcher", None)
    own = getattr(iterator, "__dict__", {})
    progress.stream, progress.streams = own.get("stream"), own.get("stream_notes")
    return iterator


def _notes_for(loader: Any, state: dict[str, Any]) -> list[Note | None] | None:
    """Return the workers' notes; None if there were others, whose random streams do not fit."""
    return state["notes"] if state["workers"] == loader.num_workers and loader.num_workers else None


def _between_epochs(notes: list[Note | None] | None) -> list[Note | None] | None:
    """Return the notes from which persistent workers begin an epoch; other workers are new ones."""
    return None if notes is None else [None if note is None else _at_rest(note) for note in notes]


def _at_rest(note: Note) -> Note:
    dataset = note["iterator"] if note["is_own"] else note["dataset"]
    return {**note, "dataset": dataset, "iterator": None, "has_ended": False}


def _load_dataset(loader: Any, state: dict[str, Any]) -> None:
    if state["dataset"] is not None and is_stateful(loader.dataset):
        loader.dataset.load_state_dict(state["dataset"])


def _load_iterator(progress: Progress, state: dict[str, Any] | None) -> None:
    """Set the iterator of an IterableDataset in this process."""
    if state is None or state["epoch"] is None or progress.fetcher is None:
        return
    iterator = getattr(progress.fetcher, "dataset_iter", None)
    if state["has_ended"]:
        progress.fetcher.ended = True
    if state["iterator"] is not None and is_stateful(iterator):
        iterator.load_state_dict(state["iterator"])  # type: ignore[union-attr]  # checked above
