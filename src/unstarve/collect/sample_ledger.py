"""Which samples an epoch's sampler gave out, as counts and digests.

It shows whether two epochs came in the same order, and whether ranks train on the same samples. Training only
puts indices aside; the stack sampler's thread counts them, at some 30 ns each. Where that is more than a
five-hundredth of the time, only the first indices of an epoch are looked at.
"""

from __future__ import annotations

import threading
import time
import zlib
from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from unstarve.collect.describe import dataset_length

HEAD = 1024
"""Indices at the beginning of an epoch that have a digest of their own: it is comparable although an epoch
was broken off."""
_AT_ONCE = 4096
_MOST_LENGTH = 1 << 24
"""Samples of larger datasets are not counted one by one."""
_MOST_SHARE = 0.002
_SOONEST_NS = 200_000_000
"""A shorter time says nothing about the share."""
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_MOST_DIGEST = (1 << 62) - 1
_clock = time.perf_counter_ns


class EpochSamples:
    """The indices of one epoch of one loader, in the order of its sampler."""

    __slots__ = (
        "_begin_ns",
        "_facts",
        "_head",
        "_headed",
        "_indices",
        "_known",
        "_lock",
        "_members",
        "_note",
        "_order",
        "_pending",
        "_seen",
        "_spent_ns",
        "aside",
    )

    def __init__(
        self, note: Callable[..., None], loader: int, epoch: int, sampler: Any, length: int | None
    ) -> None:
        self._note = note
        self._facts = {
            "loader": loader,
            "epoch": epoch,
            "sampler_epoch": _whole(getattr(sampler, "epoch", None)),
            "shuffles": _shuffles(sampler),
            "length": length,
        }
        self.aside: deque[Any] = deque()
        """What the sampler gave out and nobody has counted yet: batches of indices, or single ones."""
        self._lock = threading.Lock()
        self._begin_ns = _clock()
        self._spent_ns = 0
        self._pending = array("q")
        self._indices = self._headed = self._head = self._order = self._members = 0
        self._known = True
        """False when the sampler gives out something else than numbers."""
        counted = length is not None and length <= _MOST_LENGTH
        self._seen = np.zeros(length or 0, np.bool_) if counted else None
        """Which samples were given out; None once that is not counted."""

    def count(self) -> None:
        """Count what was put aside; any thread may."""
        with self._lock:
            begin_ns = _clock()
            while self.aside:
                self._add(self.aside.popleft())
            now_ns = _clock()
            self._spent_ns += now_ns - begin_ns
            elapsed_ns = now_ns - self._begin_ns
            if elapsed_ns > _SOONEST_NS and self._spent_ns > _MOST_SHARE * elapsed_ns:
                self._seen = None

    def write(self) -> None:
        """Note what was seen, if it was numbers."""
        self.count()
        self._count_block()
        if not self._known or not self._headed:
            return
        seen = self._seen
        self._note(
            "samples",
            **self._facts,
            indices=self._indices,
            headed=self._headed,
            head=self._head,
            distinct=None if seen is None else int(np.count_nonzero(seen)),
            order=None if seen is None else self._order,
            members=None if seen is None else self._members,
        )

    def _add(self, indices: Any) -> None:
        if not self._known or (self._seen is None and self._headed >= HEAD):
            return
        try:
            if isinstance(indices, int):
                self._pending.append(indices)
            else:
                self._pending.extend(indices)
        except (TypeError, OverflowError, ValueError):
            self._known = False
        if len(self._pending) >= _AT_ONCE:
            self._count_block()

    def _count_block(self) -> None:
        block = np.frombuffer(self._pending, np.int64)
        self._pending = array("q")
        self._indices += len(block)
        head = block[: HEAD - self._headed]
        self._head = zlib.crc32(head.tobytes(), self._head)
        self._headed += len(head)
        if self._seen is None or not len(block):
            return
        if block.min() < 0 or block.max() >= len(self._seen):
            self._seen = None  # not indices of this dataset, or one of a length that changes
            return
        self._order = zlib.crc32(block.tobytes(), self._order)
        self._seen[block] = True
        mixed = (block.astype(np.uint64) + np.uint64(1)) * _MIX
        mixed ^= mixed >> _SHIFT
        self._members = (self._members + int((mixed * _MIX).sum(dtype=np.uint64))) & _MOST_DIGEST


class SampleLedger:
    """The epochs of a process whose samples are being counted, one for each loader."""

    def __init__(self, note: Callable[..., None]) -> None:
        self._note = note
        self._epochs: dict[int, EpochSamples] = {}

    def begin(self, number: int, epoch: int, loader: Any) -> EpochSamples:
        """An epoch of a loader begins; the one before is over."""
        self.end(number)
        length = dataset_length(loader.dataset)
        self._epochs[number] = EpochSamples(self._note, number, epoch, loader.sampler, length)
        return self._epochs[number]

    def count(self) -> None:
        """Count what training has put aside."""
        for samples in list(self._epochs.values()):
            samples.count()

    def end(self, number: int) -> None:
        """An epoch is over: write what its sampler gave out."""
        samples = self._epochs.pop(number, None)
        if samples is not None:
            samples.write()

    def close(self) -> None:
        """The recording is over."""
        for number in list(self._epochs):
            self.end(number)


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 31 else None


def _shuffles(sampler: Any) -> bool | None:
    """Whether a sampler of torch's own shuffles; None for any other."""
    from torch.utils.data import DistributedSampler, RandomSampler, SequentialSampler

    if type(sampler) is RandomSampler:
        return not sampler.replacement
    if type(sampler) is DistributedSampler:
        return bool(sampler.shuffle)
    return False if type(sampler) is SequentialSampler else None
