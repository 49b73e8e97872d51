"""The state of a loader: what it holds, how it is checked, and how it is loaded.

A state is a dict of plain values, a few ten kilobytes, whatever the size of the dataset::

    {"unstarve_loader": 1,                       version
     "loader": {"samples": 50000, …},            arguments that decide which batches there are
     "workers": 4, "persistent": False,
     "random": {"process": {…}, "own": {…}},     all generators, when the state was saved
     "sampler_epochs": {"sampler": 3},           of samplers with a set_epoch
     "samplers": {"ended": False, "states": …},  of samplers that save their own state; None: there are none
     "dataset": …, "iterator": …,                of a dataset in the training process that saves its own state
     "has_ended": False,                         whether an IterableDataset there has no more samples
     "seed": 7, "notes": […],                    base seed and notes of the workers; see `worker_notes`
     "epoch": {"given": 120, "asked": 128,       batches given; batches of indices drawn; None: between epochs
               "random": {…},                    the generators that indices depend on, when the epoch began
               "drew_seed": True, "next_worker": 0,
               "notes": […]}}                    the workers' notes, when the epoch began
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.utils.data import IterableDataset

from unstarve.errors import UsageError
from unstarve.fixes.loader.resume.progress import Note, Progress
from unstarve.fixes.loader.resume.protocol import (
    any_is_stateful,
    is_stateful,
    load_sampler_states,
    sampler_epochs,
    sampler_states,
    samplers_of,
    set_sampler_epochs,
    state_of,
)
from unstarve.fixes.loader.resume.random_state import loader_state, set_loader_state

VERSION = 1
_MARK = "unstarve_loader"


def save(loader: Any, progress: Progress | None, loaded: dict[str, Any] | None) -> dict[str, Any]:
    """Return the loader's state. `loaded` is one that was loaded and not used yet."""
    if loaded is not None:
        return {**loaded, "random": loader_state(loader)}
    under_way = progress is not None and not progress.ended
    if progress is not None and under_way:
        _check_tracked(loader, progress)
    state = {
        _MARK: VERSION,
        "loader": description(loader),
        "workers": loader.num_workers,
        "persistent": bool(loader.persistent_workers),
        "random": loader_state(loader),
        "sampler_epochs": sampler_epochs(loader),
        "samplers": _samplers(loader, progress),
        "seed": progress.seed if progress is not None else None,
        "notes": _notes(progress, loader.num_workers),
        "epoch": None,
        **_dataset(loader, progress),
    }
    if progress is not None and under_way:
        state["epoch"] = {
            "given": progress.given,
            "asked": asked(loader, progress),
            "random": progress.start(),
            "drew_seed": progress.drew_seed,
            "next_worker": progress.next_worker,
            "notes": progress.notes_before,
        }
    return state


def asked(loader: Any, progress: Progress) -> int:
    """Return for how many batches of indices the epoch's sampler was asked."""
    if progress.stream is not None:
        return max(int(progress.stream.asked), progress.given)
    ahead: int = loader.num_workers * (loader.prefetch_factor or 0)
    return max(progress.given + ahead, progress.asked_before)


def description(loader: Any) -> dict[str, Any]:
    """Return the arguments that decide which batches an epoch has."""
    iterable = isinstance(loader.dataset, IterableDataset)
    return {
        "iterable": iterable,
        "samples": None if iterable else _length(loader.dataset),
        "batch_size": loader.batch_size,
        "drop_last": bool(loader.drop_last),
        "sampler": type(loader.sampler).__name__,
        "batch_sampler": type(loader.batch_sampler).__name__,
        "batches": None if iterable else _length(loader._index_sampler),
    }


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None


def _check_tracked(loader: Any, progress: Progress) -> None:
    if progress.untracked is not None:
        raise UsageError(f"this loader's state cannot be saved during an epoch: {progress.untracked}")
    if progress.stream is not None and isinstance(loader.dataset, IterableDataset):
        raise UsageError(
            "autotune changes the number of workers, and each worker of an IterableDataset has its own part "
            "of it; save the state between epochs, or without autotune"
        )
    if loader.num_workers > 0 and not getattr(loader, "in_order", True):
        raise UsageError(
            "in_order=False gives batches in no fixed order, so none can be resumed; "
            "save the state between epochs, or use in_order=True"
        )


def _samplers(loader: Any, progress: Progress | None) -> dict[str, Any] | None:
    if not any_is_stateful(samplers_of(loader)):
        return None
    if progress is None or progress.ended:
        return {"ended": progress is not None, "states": sampler_states(loader)}
    if progress.given == 0 or progress.indices is None:
        return progress.samplers_before
    states = progress.indices.after(progress.given)
    if states is None:
        raise UsageError("the state of the sampler after the last batch is not known")
    return {"ended": False, "states": states}


def _notes(progress: Progress | None, workers: int) -> list[Note | None] | None:
    if progress is None:
        return None
    if progress.streams is not None:
        return [progress.streams.get(number) for number in range(workers)]
    if progress.notes is None:
        return progress.loaded
    notes = progress.notes.after(None if progress.ended else progress.tasks)
    failed = next((note["failed"] for note in notes if note is not None and "failed" in note), None)
    if failed is not None:
        raise UsageError(f"a worker could not save the state of its dataset: {failed}")
    return notes


def _dataset(loader: Any, progress: Progress | None) -> dict[str, Any]:
    if loader.num_workers > 0:
        return {"dataset": None, "iterator": None, "has_ended": False}
    under_way = progress is not None and not progress.ended
    iterator = getattr(progress.fetcher, "dataset_iter", None) if progress is not None and under_way else None
    dataset = None if iterator is loader.dataset else state_of(loader.dataset)
    has_ended = progress is not None and iterator is not None and bool(progress.fetcher.ended)
    return {"dataset": dataset, "iterator": state_of(iterator), "has_ended": has_ended}


def check(loader: Any, state: Mapping[str, Any]) -> None:
    """Raise UsageError for a state that this loader cannot resume from."""
    if not isinstance(state, Mapping) or _MARK not in state:
        found = f"a dict with {', '.join(map(repr, state))}" if isinstance(state, Mapping) else repr(state)
        raise UsageError(f"this is not a state of unstarve.DataLoader: {found:.200}")
    if state[_MARK] != VERSION:
        raise UsageError(
            f"the state has version {state[_MARK]!r} and this unstarve reads version {VERSION}; "
            "resume with the unstarve that saved it"
        )
    now = description(loader)
    for name, before in state["loader"].items():
        if now.get(name) != before:
            raise UsageError(
                f"the state was saved with {_argument(name, before)} "
                f"and this loader has {_argument(name, now.get(name))}"
            )
    if now["iterable"] and state["epoch"] is not None and state["workers"] != loader.num_workers:
        raise UsageError(
            f"the state was saved with num_workers={state['workers']} and this loader has "
            f"num_workers={loader.num_workers}: each worker of an IterableDataset has its own part of it"
        )


def _argument(name: str, value: Any) -> str:
    words = {"samples": f"{value} samples", "batches": f"{value} batches an epoch"}
    if name == "iterable":
        return "an IterableDataset" if value else "a map-style dataset"
    return words.get(name, f"{name}={value}")


def load(loader: Any, state: Mapping[str, Any]) -> None:
    """Set generators, samplers and a dataset in this process to the state, as far as no epoch has begun."""
    set_sampler_epochs(loader, state["sampler_epochs"])
    set_loader_state(loader, state["random"])
    samplers = state["samplers"]
    if samplers is not None:
        load_sampler_states(loader, samplers["states"])
        if samplers["ended"]:
            _begin_anew(loader, samplers["states"])


def _begin_anew(loader: Any, states: dict[str, Any]) -> None:
    """Let samplers that stopped at the end of an epoch begin the next one.

    One with the state of a finished epoch gives the rest of that epoch first: nothing.
    """
    if next(iter(loader._index_sampler), None) is not None:
        load_sampler_states(loader, states)


def is_replayed(loader: Any, state: Mapping[str, Any]) -> bool:
    """Whether the batches given must be made again: an IterableDataset that saves no state."""
    if not isinstance(loader.dataset, IterableDataset):
        return False
    saved = [note for note in state["notes"] or [] if note is not None]
    if loader.num_workers > 0:
        return all(note["dataset"] is None and note["iterator"] is None for note in saved)
    return state["iterator"] is None and not is_stateful(loader.dataset)
