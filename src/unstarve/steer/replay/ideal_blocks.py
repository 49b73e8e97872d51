"""`unstarve ideal` inside the training process: real and replayed blocks of steps in turn.

All loaders of a process change phase together, so that a loop over two of them is replayed as a whole: only
the loader that is asked first in a step decides, so that no step gets one batch of each kind.

A block begins unsettled: after a replayed block the workers' queues are full, and the first real batches come
for free; after a real block the workers are still busy filling them. Such steps are marked and not measured.
On CUDA the device is synchronized where a measured stretch begins and ends, so that work queued in one phase
does not count in the next.

An epoch keeps its length where that is known: replayed batches count, so that progress bars and schedules
still fit. An iterable-style loader delivers all its own batches and the replayed ones on top. The ranks of
one training must change phase at the same step, or they would wait for each other: there, blocks are counted
in steps, never in seconds.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

import torch

from unstarve.collect.dali_pipeline import batches_ahead, length_is_unknown
from unstarve.collect.device.gpu import cuda_in_use
from unstarve.model.launch_settings import IdealSettings
from unstarve.record import format as f
from unstarve.steer.replay.replayed_batches import BatchCache

S = TypeVar("S")
T = TypeVar("T")

_WARM_UP_STEPS = 5
_LONGEST_FILL_S = 10.0


@dataclass
class _LoaderState:
    cache: BatchCache
    in_flight: int
    """Batches that the workers may have ready or be making."""
    length: int | None = None
    delivered: int = 0
    """In this epoch, real and replayed."""
    replayed: int = 0
    """In this epoch."""
    in_block: int = 0
    measured: int = 0
    """In this block."""
    measured_since_s: float = 0.0
    replaying: bool = False
    settled: bool = False
    real_step_s: float = 0.0
    """Running mean."""
    asked_s: float = 0.0


class Ideal:
    """Decides, step by step, whether training gets a real batch or a cached one."""

    def __init__(self, settings: IdealSettings) -> None:
        self._settings = settings
        self._loaders: dict[int, _LoaderState] = {}
        self._lock = threading.RLock()
        self._block = 0
        """0 is warm-up; odd blocks are real, even ones replay."""
        self._block_began_s = 0.0
        self._leader: int | None = None
        """The loader that is asked first in every step."""
        self._asked_since: set[int] = set()
        """Loaders that were asked since the leader was."""
        self._by_steps = int(os.environ.get("WORLD_SIZE") or 1) > 1

    @property
    def done(self) -> bool:
        """Whether all blocks have been measured."""
        return self._block > 2 * self._settings.pairs + 1

    def begin_epoch(self, number: int, loader: Any) -> None:
        """A loader begins an epoch."""
        with self._lock:
            state = self._loaders.get(number)
            if state is None:
                where = cast(Literal["host", "device"], self._settings.replay_on)
                cache = BatchCache(self._settings.cached_batches, replay_on=where)
                workers = getattr(loader, "num_workers", 0) or 0
                prefetch = getattr(loader, "prefetch_factor", None) or 0
                ahead = batches_ahead(loader) or workers * prefetch
                state = self._loaders[number] = _LoaderState(cache, in_flight=ahead)
            state.length = _length(loader)
            state.delivered = state.replayed = 0
            state.asked_s = 0.0

    def before(self, number: int) -> None:
        """Training asks for its next batch: decide which it gets, and whether the step is measured."""
        with self._lock:
            state = self._loaders[number]
            self._learn_step(state)
            if self._begins_a_step(number) and self._block_is_over(state):
                _synchronize()
                self._block += 1
                self._block_began_s = time.perf_counter()
                for other in self._loaders.values():
                    other.in_block = other.measured = 0
            state.replaying = self._block > 0 and self._block % 2 == 0 and len(state.cache) > 0
            state.settled = self._block > 0 and self._is_settled(state)
            if state.settled and state.measured == 0:
                _synchronize()
                state.measured_since_s = time.perf_counter()
            state.asked_s = time.perf_counter()

    def deliver(self, number: int, advance: Callable[[S], T], source: S) -> T:
        """A real batch or a cached one."""
        state = self._loaders[number]
        if (
            state.length is not None
            and state.delivered >= state.length
            and (state.replayed or state.replaying)
        ):
            raise StopIteration
        return cast(T, state.cache.hand_out()) if state.replaying else advance(source)

    def label(self, number: int, batch: Any) -> tuple[int, int]:
        """Flags and block of the batch just delivered; keeps a real batch for replay while there is room."""
        with self._lock:
            state = self._loaders[number]
            if not state.replaying and not state.cache.full:
                state.cache.offer(batch)
            state.delivered += 1
            state.replayed += state.replaying
            state.in_block += 1
            state.measured += state.settled
            return (f.REPLAY if state.replaying else 0) | (0 if state.settled else f.SETTLING), self._block

    def _begins_a_step(self, number: int) -> bool:
        """Whether this ask is the first of its step. A loader asked twice in a row leads from then on."""
        if number == self._leader or number in self._asked_since or self._leader is None:
            self._leader = number
            self._asked_since.clear()
        else:
            self._asked_since.add(number)
        return number == self._leader

    def _learn_step(self, state: _LoaderState) -> None:
        if state.asked_s and not state.replaying:
            step_s = time.perf_counter() - state.asked_s
            state.real_step_s = 0.8 * state.real_step_s + 0.2 * step_s if state.real_step_s else step_s

    def _is_settled(self, state: _LoaderState) -> bool:
        if state.replaying and self._by_steps:
            return state.in_block > state.in_flight
        if state.replaying:
            fill_s = min(state.in_flight * state.real_step_s, _LONGEST_FILL_S)
            return state.in_block > 0 and time.perf_counter() - self._block_began_s >= fill_s
        # A step in which a batch is copied into the cache is slower than training would be.
        return state.cache.full and state.in_block > state.in_flight

    def _block_is_over(self, state: _LoaderState) -> bool:
        if self._block == 0:
            return state.in_block >= max(_WARM_UP_STEPS, self._settings.cached_batches)
        enough_steps = state.measured >= self._settings.block_steps
        long_enough = time.perf_counter() - state.measured_since_s >= self._settings.block_s
        return enough_steps and (long_enough or self._by_steps)


def _synchronize() -> None:
    if cuda_in_use():
        torch.cuda.synchronize()


def _length(loader: Any) -> int | None:
    """Batches per epoch of a map-style loader. Asking an iterable-style one would change torch's warnings."""
    if isinstance(getattr(loader, "dataset", None), torch.utils.data.IterableDataset):
        return None
    try:
        return None if length_is_unknown(loader) else len(loader)
    except TypeError:
        return None
