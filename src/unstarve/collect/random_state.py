"""Read a few batches from a loader without changing any random number drawn afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch

_PLAIN = (bool, int, float, str, type(None))


@contextmanager
def random_state_kept(loader: Any) -> Iterator[None]:
    """Restore all random streams on exit: the global ones and those held by the loader's parts.

    Samplers also get back their counters, flags and lists, so that one with a fixed order continues where it
    was. Other state of a dataset or sampler (open files, other objects) cannot be restored.
    """
    put_back = [*_global_streams(), *_own_streams(loader)]
    for sampler in _samplers(loader):
        put_back.extend(_plain_state(sampler))
    try:
        yield
    finally:
        for restore in put_back:
            restore()


def _global_streams() -> Iterator[Callable[[], object]]:
    yield partial(random.setstate, random.getstate())
    yield partial(np.random.set_state, np.random.get_state())
    yield partial(torch.set_rng_state, torch.get_rng_state())
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # untyped in torch
        yield partial(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())


def _samplers(loader: Any) -> list[Any]:
    batch_sampler = getattr(loader, "batch_sampler", None)
    candidates = (getattr(loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None))
    return list({id(item): item for item in candidates if hasattr(item, "__dict__")}.values())


def _own_streams(loader: Any) -> Iterator[Callable[[], object]]:
    for owner in (loader, getattr(loader, "dataset", None), *_samplers(loader)):
        for stream in getattr(owner, "__dict__", {}).values():
            match stream:
                case torch.Generator():
                    yield partial(stream.set_state, stream.get_state())
                case np.random.Generator():
                    yield partial(setattr, stream.bit_generator, "state", stream.bit_generator.state)
                case np.random.RandomState():
                    yield partial(stream.set_state, stream.get_state())
                case random.Random():
                    yield partial(stream.setstate, stream.getstate())


def _plain_state(sampler: Any) -> Iterator[Callable[[], object]]:
    for name, value in vars(sampler).items():
        if isinstance(value, _PLAIN):
            yield partial(sampler.__dict__.__setitem__, name, value)
        elif type(value) is list:
            yield partial(value.__setitem__, slice(None), value.copy())
