"""A few real batches, kept and handed out again and again: training as if loading were free.

The kept batches must be representative, and handing one out must cost next to nothing:

- **Full size.** A batch smaller than the largest one seen is not kept, unless the loader varies its batch
  size by design: the short last batch of an epoch would make training look faster than it is.
- **Private.** Tensors are copied out of the workers' shared memory, so that no descriptor stays open.
- **Protected.** Training may change a batch in place: normalize it, pop a key, append to a list. Every batch
  that is handed out has new containers, and tensors that share memory with a *working copy*. Before that
  memory is handed out again it is checked; if it was changed, a new working copy is made from a pristine one.
  The changed memory is left alone, because training may still be using it.

Sharing the working copy makes replay free, and the check is cheap rather than complete: torch's version
counter sees every in-place operation, and a sample of up to 256 elements sees most writes that bypass it
(``.data``, ``.numpy()``). A write that misses every sampled element goes unnoticed. On an accelerator there
is no sample, because reading it would wait for the device. An entry that is handed out twice at the same time
(to a loop that holds more batches than the cache) is the same memory twice. Arrays, small tensors and tensors
that cannot be checked are copied for each hand-out. An entry takes twice the memory of its batch.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Literal

import torch
from torch.nn.utils.rnn import PackedSequence

from unstarve.collect.describe import batch_extent
from unstarve.errors import UsageError

_OFFERS_TO_SEE_VARIETY = 8
"""Below this many batches, a smaller one counts as the end of an epoch."""

_COPIED_BYTES = 4096
"""Up to this size a copy on the host is about as cheap as the check."""

_SAMPLED_ELEMENTS = 256

# Bits are compared, not values: a NaN is equal to itself, and −0 is not 0.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

_VALUES = (str, bytes, int, float, complex, bool, type(None))
_NEVER_COPIED = (
    *_VALUES,
    Enum,
    type,
    ModuleType,
    FunctionType,
    BuiltinFunctionType,
    torch.dtype,
    torch.device,
)


class BatchCache:
    """Up to `capacity` batches for replay, on the host or on a device.

    With ``replay_on="device"`` all tensors of a hand-out are on `device` (by default the current CUDA
    device), so that replay does not measure the copy to the device.
    """

    def __init__(
        self,
        capacity: int,
        *,
        replay_on: Literal["host", "device"] = "host",
        device: torch.device | str | int | None = None,
    ) -> None:
        if type(capacity) is not int or capacity < 1:
            raise UsageError(f"capacity must be an integer of at least 1, got {capacity!r}")
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
        """Keep a private copy of `batch` if there is room and it has full size."""
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
        """The next kept batch, in turn, as the loader delivered it; the caller may change it."""
        if not self._entries:
            raise UsageError("there is no batch to hand out yet")
        entry = self._entries[self._next % len(self._entries)]
        self._next = (self._next + 1) % len(self._entries)
        return entry.hand_out()

    def _batch_size_varies(self, largest: int) -> bool:
        """Whether most batches differ from the largest: sized by tokens or buckets, each is normal."""
        offers = self._sizes.total()
        return offers >= _OFFERS_TO_SEE_VARIETY and self._sizes[largest] * 2 < offers


class _Entry:
    """One kept batch: a tree of pristine values, and what replaces some of them when it is handed out."""

    def __init__(self, batch: Any, size: int, device: torch.device | None) -> None:
        self.size = size
        # ``copy.deepcopy`` rebuilds any nesting, and takes from its memo what has been copied already: the
        # memo decides how a tensor is copied, here and at each hand-out.
        self._shared: dict[int, Any] = {}
        parts = find_parts(batch)
        memo: dict[int, Any] = {id(tensor): private_clone(tensor) for tensor in parts.tensors}
        for item in parts.opaque:
            self._copy(item, memo)
        self._tree = self._copy(batch, memo)
        on_host = {id(tensor) for tensor in parts.stay_on_host}
        # Each with its pristine tensor, whose id is its key in a memo: only living objects have unique ids.
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
        """A deep copy, or the item itself where copying fails: an open file, a lock, some other object."""
        try:
            return copy.deepcopy(item, memo)
        except Exception:  # whatever an object's own copying may raise
            memo[id(item)] = self._shared[id(item)] = item
            return item


def _size(batch: Any) -> int:
    """Samples in a batch; −1 if not known, so that all such batches count as equal."""
    try:
        return batch_extent(batch)[0]
    except Exception:  # a sparse tensor, a foreign object: no reason to stop training
        return -1


def _replay_device(replay_on: str, device: torch.device | str | int | None) -> torch.device | None:
    """Where working copies live; None leaves each tensor where the loader put it."""
    if replay_on == "host":
        if device is not None:
            raise UsageError(f"device={device!r} needs replay_on='device'")
        return None
    if replay_on != "device":
        raise UsageError(f"replay_on must be 'host' or 'device', got {replay_on!r}")
    if device is not None:
        return torch.device(device)
    if not torch.cuda.is_available():
        raise UsageError("replay_on='device' needs a CUDA device and torch sees none; use replay_on='host'")
    return torch.device("cuda", torch.cuda.current_device())


# --- one tensor ---------------------------------------------------------------------------------------------


class ReplayTensor:
    """A tensor that is handed out many times without copying, and notices when it was changed.

    What is handed out are aliases of a working copy, which is replaced when it was written to.

    `pristine` belongs to this object from now on and is never handed out. With a `device`, the working
    copy lives there.
    """

    def __init__(self, pristine: torch.Tensor, device: torch.device | None) -> None:
        self._pristine = pristine
        self._device = pristine.device if device is None else device
        self._requires_grad = pristine.requires_grad
        self._sample: tuple[torch.Tensor, torch.Tensor] | None = None
        self._watched = not self._is_small_on_host() and self._watch()

    def hand_out(self) -> torch.Tensor:
        """The tensor as it was kept, without gradient or history; the caller may write to it."""
        if not self._watched:
            return private_clone(self._pristine, self._device).requires_grad_(self._requires_grad)
        if self._is_changed():
            # A loop that changes its batches does so at every step. The copy must not cross to the device
            # again, or replay would measure what it is meant to leave out.
            self._pristine = self._pristine.to(self._device)
            self._watched = self._watch()
        return self._working.detach().requires_grad_(self._requires_grad)

    def _watch(self) -> bool:
        """Make a working copy and remember its state; False for a kind of tensor that cannot be checked."""
        self._working = private_clone(self._pristine, self._device)
        try:
            self._version = self._working._version
            self._storage_bytes = self._working.untyped_storage().nbytes()
            if self._device.type == "cpu":
                seen = _sampled(self._working)
                self._sample = seen, seen.clone()
        except (RuntimeError, NotImplementedError, KeyError, TypeError):
            return False
        return True

    def _is_changed(self) -> bool:
        if self._working._version != self._version:
            return True
        # Before the sample: reading from a shrunk storage would read freed memory.
        if self._working.untyped_storage().nbytes() != self._storage_bytes:
            return True
        return self._sample is not None and not torch.equal(*self._sample)

    def _is_small_on_host(self) -> bool:
        on_host = self._device.type == "cpu" and not self._pristine.is_pinned()
        return on_host and self._pristine.numel() * self._pristine.element_size() <= _COPIED_BYTES


def private_clone(tensor: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    """A copy that shares no memory and keeps type, memory layout, pinning and `requires_grad`."""
    # A batch from inference mode may be replayed in training, where its tensors could not be used.
    with torch.inference_mode(False), torch.no_grad():
        clone = tensor.detach().clone()
        if device is not None and device != tensor.device:
            clone = clone.to(device)
        elif tensor.device.type == "cpu" and tensor.is_pinned():
            clone = clone.pin_memory()
        return clone.requires_grad_(tensor.requires_grad)


def _sampled(dense: torch.Tensor) -> torch.Tensor:
    """A view of elements spread evenly over the memory of `dense`, as integers of their width."""
    plain = dense.detach().as_subclass(torch.Tensor)
    count = min(plain.numel(), _SAMPLED_ELEMENTS)
    spread = plain.as_strided((count,), (plain.numel() // count,), plain.storage_offset())
    return spread.view(_BITS[plain.element_size()])


# --- one batch ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BatchParts:
    """The parts of a batch that are not copied like any other Python value."""

    tensors: list[torch.Tensor] = field(default_factory=list)
    stay_on_host: list[torch.Tensor] = field(default_factory=list)
    """Those of `tensors` that must not be moved to a device."""
    flat_lists: list[list[Any]] = field(default_factory=list)
    """Lists of plain values (tokens, captions): copying them item by item would be slow."""
    opaque: list[Any] = field(default_factory=list)
    """Objects of other classes, inner ones first: copying them may fail."""


def find_parts(batch: Any) -> BatchParts:
    """Search containers, dataclasses and the attributes of unknown objects; each part is listed once."""
    parts = BatchParts()
    seen: set[int] = set()
    pending = [batch]
    while pending:
        item = pending.pop()
        if id(item) in seen or isinstance(item, _NEVER_COPIED):
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            parts.tensors.append(item)
            continue
        if type(item) is list and all(type(value) in _VALUES for value in item):
            parts.flat_lists.append(item)
            continue
        if isinstance(item, PackedSequence):
            parts.stay_on_host.append(item.batch_sizes)
        if not isinstance(item, (dict, list, tuple, set, frozenset)):
            parts.opaque.append(item)
        pending.extend(_children(item))
    parts.opaque.reverse()
    return parts


def _children(item: Any) -> Iterable[Any]:
    if isinstance(item, Mapping):
        yield from item.values()
    elif isinstance(item, (list, tuple, set, frozenset)):
        yield from item
    elif is_dataclass(item):
        yield from (getattr(item, part.name, None) for part in fields(item))
    yield from getattr(item, "__dict__", {}).values()
