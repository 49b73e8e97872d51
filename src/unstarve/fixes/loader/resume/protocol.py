"""Objects with `state_dict` and `load_state_dict`, as torchdata's StatefulDataLoader expects them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.utils.data import Sampler


def is_stateful(thing: Any) -> bool:
    """Whether the object saves and loads its own state."""
    return callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))


def state_of(thing: Any) -> Any:
    """Return the object's own state; None if it saves none."""
    return thing.state_dict() if is_stateful(thing) else None


def samplers_of(loader: Any) -> Iterable[tuple[str, Any]]:
    """Return the loader's samplers and those inside them, each once, with a name for states to refer to."""
    found: dict[int, tuple[str, Any]] = {}
    waiting = [("batch_sampler", loader.batch_sampler), ("sampler", loader.sampler)]
    for name, sampler in waiting:
        if sampler is None or id(sampler) in found:
            continue
        found[id(sampler)] = (name, sampler)
        for key, value in getattr(sampler, "__dict__", {}).items():
            if isinstance(value, Sampler):
                waiting.append((f"{name}.{key}", value))
    return found.values()


def any_is_stateful(samplers: Iterable[tuple[str, Any]]) -> bool:
    """Whether one of the samplers saves its own state."""
    return any(is_stateful(sampler) for _, sampler in samplers)


def sampler_states(loader: Any) -> dict[str, Any]:
    """Return the states of the samplers that save one, by name."""
    return {name: sampler.state_dict() for name, sampler in samplers_of(loader) if is_stateful(sampler)}


def load_sampler_states(loader: Any, states: dict[str, Any]) -> None:
    """Give each sampler the state that was saved under its name."""
    for name, sampler in samplers_of(loader):
        if name in states and is_stateful(sampler):
            sampler.load_state_dict(states[name])


def sampler_epochs(loader: Any) -> dict[str, int]:
    """Return the epoch of each sampler with a `set_epoch`, by name."""
    return {
        name: sampler.epoch
        for name, sampler in samplers_of(loader)
        if callable(getattr(sampler, "set_epoch", None)) and type(getattr(sampler, "epoch", None)) is int
    }


def set_sampler_epochs(loader: Any, epochs: dict[str, int]) -> None:
    """Set the epoch of each sampler that was saved under its name."""
    for name, sampler in samplers_of(loader):
        if name in epochs and callable(getattr(sampler, "set_epoch", None)):
            sampler.set_epoch(epochs[name])
