"""Samples of an origin, taken apart by several processes, in order."""

from __future__ import annotations

import multiprocessing as mp
import random
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from unstarve.errors import UnstarveError
from unstarve.fixes.datasets.packed.encode import Encoded, encode
from unstarve.fixes.datasets.packed.origins import Origin, Streamed, in_words

_TASK_BYTES = 4 << 20
_TASK_S = 0.2
_MOST_PER_TASK = 64
_FEW = 32
"""So few samples are packed sooner than a process is started."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a sample could not be had."""

    message: str


def encoded_samples(
    origin: Origin | Streamed, first: int, *, jobs: int, seed: int
) -> Iterator[Encoded | Trouble]:
    """The samples from number `first` on. A process seeds itself for each, so that it does not matter which
    of them, or which attempt, makes it.
    """
    if isinstance(origin, Streamed):
        yield from _streamed(origin, first)
        return
    task = Task(origin, seed)
    numbers = range(first, len(origin))
    if jobs < 2 or len(numbers) < _FEW:
        for number in numbers:
            yield task.encode(number)
        return
    begun = time.monotonic()
    opening = task.encode(first)
    seconds = time.monotonic() - begun
    yield opening
    size = opening.size_bytes if isinstance(opening, Encoded) else 0
    step = min(_TASK_BYTES // max(size, 1), int(_TASK_S / max(seconds, 1e-6)), len(numbers) // jobs)
    step = max(1, min(step, _MOST_PER_TASK))
    groups = [list(range(at, min(at + step, numbers.stop))) for at in range(first + 1, numbers.stop, step)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create")  # as many as were asked for
        loader: DataLoader[Any] = DataLoader(
            task,
            batch_sampler=groups,
            num_workers=jobs,
            collate_fn=_as_it_is,
            # What a script made cannot always be pickled; a forked process has it.
            multiprocessing_context="fork" if "fork" in mp.get_all_start_methods() else None,
        )
        groups_done = iter(loader)
    for group in groups_done:
        yield from group


class Task(Dataset[Any]):
    """What a worker process does: load and take apart."""

    def __init__(self, origin: Origin, seed: int) -> None:
        self._origin = origin
        self._seed = seed

    def encode(self, number: int) -> Encoded | Trouble:
        """One sample, made with random numbers of its own."""
        seed_everything(self._seed * 0x9E3779B97F4A7C15 + number)
        try:
            sample = self._origin.load(number)
            return encode(sample)
        except UnstarveError as error:
            return Trouble(str(error))
        except Exception as error:  # whatever a user's dataset raises
            return Trouble(f"failed with {in_words(error)}")

    def __getitems__(self, numbers: Sequence[int]) -> list[Encoded | Trouble]:
        return [_sendable(self.encode(number)) for number in numbers]


def is_random(origin: Origin | Streamed, seed: int) -> bool:
    """Whether the first sample comes out differently when it is made twice."""
    if isinstance(origin, Streamed) or len(origin) == 0:
        return False
    one, other = Task(origin, seed).encode(0), Task(origin, seed + 1).encode(0)
    return isinstance(one, Encoded) and isinstance(other, Encoded) and one.checksum != other.checksum


def seed_everything(seed: int) -> None:
    """Seed the random numbers a dataset may use."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed % 2**63)  # torch.manual_seed asks every device first: 90 µs


def _streamed(origin: Streamed, first: int) -> Iterator[Encoded | Trouble]:
    samples = iter(origin)
    number = 0
    while True:
        try:
            sample = next(samples)
        except StopIteration:
            return
        except Exception as error:  # whatever a user's dataset raises; there is no going on behind it
            raise UnstarveError(f"sample {number} failed with {in_words(error)}") from error
        if number >= first:
            try:
                yield encode(sample)
            except UnstarveError as error:
                yield Trouble(str(error))
        number += 1


def _sendable(result: Encoded | Trouble) -> Encoded | Trouble:
    if isinstance(result, Trouble):
        return result
    return replace(result, payloads=tuple(bytes(payload) for payload in result.payloads))


def _as_it_is(group: Any) -> Any:
    return group
