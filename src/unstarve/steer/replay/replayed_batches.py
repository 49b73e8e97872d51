"""A few real batches, kept to be handed out again and again: training as if data were free.

The kept batches must be worth training on, and handing one out must cost next to nothing:

- **Full size.** A batch smaller than the largest one seen is not kept (the short last batch of an epoch
  would make training look faster than it is), unless the loader varies its batch size by design.
- **Private.** Tensors are copied out of the workers' shared memory, so no descriptor stays open.
- **Unspoilt.** Training may change a batch in place: normalize it, pop a key, append to a list. Every
  hand-out has containers of its own, and tensors that share memory with a *working copy*. Before that
  memory is handed out again it is checked; if it was changed, a new working copy is made from a pristine
  one. The changed memory is left alone, since training may still be using it.

Sharing the working copy is what makes replay free, and the check is cheap rather than complete: torch's
version counter sees every in-place operation, and a sample of up to 256 elements sees most writes that go
around it (``.data``, ``.numpy()``). Such a write that misses every sampled element stays unseen; on an
accelerator there is no sample, as reading it would wait for the device. One entry handed out twice at the
same time (a loop that holds more batches than the cache has) is the same memory twice. Arrays, small
tensors and tensors that cannot be checked are copied at each hand-out. All told, an entry takes twice
its batch's memory.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any, Literal

import torch

from unstarve.collect.describe import batch_extent
from unstarve.errors import UsageError
from unstarve.steer.replay.batch_parts import find_parts
from unstarve.steer.replay.guarded_tensor import ReplayTensor, private_clone

_OFFERS_TO_SEE_VARIETY = 8
"""Below this many batches, a smaller one is taken for the end of an epoch."""


class BatchCache:
    """Up to `capacity` batches for replay, on the host or on a device.

    With ``replay_on="device"`` all tensors of a hand-out are on `device` (by default the current CUDA
    device), so that the copy there is left out of what replay measures.
    """

    def __init__(
        self,
        capacity: int,
        *,
        replay_on: Literal["host", "device"] = "host",
        device: torch.device | str | int | None = None,
    ) -> None:
        if type(capacity) is not int or capacity < 1:
            raise UsageError(f"a cache holds a whole number of batches, at least 1, not {capacity!r}")
        self._capacity = capacity
        self._device = _replay_device(replay_on, device)
        self._entries: list[_Entry] = []
        self._sizes: Counter[int] = Counter()
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def full(self) -> bool:
        """There is no room for another batch."""
        return len(self._entries) >= self._capacity

    def offer(self, batch: Any) -> None:
        """Keep a private copy of `batch` if there is room and it is of full size."""
        if self.full:
            return
        size = _size(batch)
        self._sizes[size] += 1
        largest = max(self._sizes)
        if not self._batch_size_varies(largest):
            if size < largest:
                return
            self._entries = [entry for entry in self._entries if entry.size >= largest]
        self._entries.append(_Entry(batch, size, self._device))

    def hand_out(self) -> Any:
        """The next kept batch, in turn: as the loader gave it, and the caller's to change."""
        if not self._entries:
            raise UsageError("no batch has been kept yet, so there is none to hand out")
        entry = self._entries[self._next % len(self._entries)]
        self._next = (self._next + 1) % len(self._entries)
        return entry.hand_out()

    def _batch_size_varies(self, largest: int) -> bool:
        """Most batches differ from the largest: sized by tokens or buckets, so each is a normal one."""
        offers = self._sizes.total()
        return offers >= _OFFERS_TO_SEE_VARIETY and self._sizes[largest] * 2 < offers


class _Entry:
    """One kept batch: a tree of pristine values, and what stands in for some of them in a hand-out."""

    def __init__(self, batch: Any, size: int, device: torch.device | None) -> None:
        self.size = size
        # ``copy.deepcopy`` rebuilds any nesting and takes from its memo what is already made. That is the
        # place to say how a tensor is copied, here and at each hand-out.
        self._shared: dict[int, Any] = {}
        parts = find_parts(batch)
        memo: dict[int, Any] = {id(tensor): private_clone(tensor) for tensor in parts.tensors}
        for item in parts.opaque:
            self._copy(item, memo)
        self._tree = self._copy(batch, memo)
        on_host = {id(tensor) for tensor in parts.stay_on_host}
        # Each beside its pristine tensor, whose id is its key in a memo: an id is unique only while held.
        self._tensors = [
            (memo[id(tensor)], ReplayTensor(memo[id(tensor)], None if id(tensor) in on_host else device))
            for tensor in parts.tensors
        ]
        self._flat_lists = [memo[id(item)] for item in parts.flat_lists if id(item) in memo]

    def hand_out(self) -> Any:
        memo: dict[int, Any] = {id(pristine): tensor.hand_out() for pristine, tensor in self._tensors}
        memo |= {id(item): item.copy() for item in self._flat_lists}
        memo |= self._shared
        return copy.deepcopy(self._tree, memo)

    def _copy(self, item: Any, memo: dict[int, Any]) -> Any:
        """A deep copy, or the item itself where that fails: an open file, a lock, an unwilling object."""
        try:
            return copy.deepcopy(item, memo)
        except Exception:  # whatever an object's own copying may raise
            memo[id(item)] = self._shared[id(item)] = item
            return item


def _size(batch: Any) -> int:
    """Samples in a batch; −1 for those that cannot be told, which thus all count as equal."""
    try:
        return batch_extent(batch)[0]
    except Exception:  # a sparse tensor, a foreign object: no reason to stop training
        return -1


def _replay_device(replay_on: str, device: torch.device | str | int | None) -> torch.device | None:
    """Where working copies live; None leaves each tensor where the loader put it."""
    if replay_on == "host":
        if device is not None:
            raise UsageError(f"device={device!r} is only of use with replay_on='device'")
        return None
    if replay_on != "device":
        raise UsageError(f"replay_on is 'host' or 'device', not {replay_on!r}")
    if device is not None:
        return torch.device(device)
    if not torch.cuda.is_available():
        raise UsageError("replay_on='device' needs a CUDA device and torch sees none; use replay_on='host'")
    return torch.device("cuda", torch.cuda.current_device())
