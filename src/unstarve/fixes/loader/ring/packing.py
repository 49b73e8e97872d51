"""A batch ↔ a pickle of its tree and the memory of its arrays beside it.

The pickle is the one torch's loader would send, so that every object travels as it does there; only where it
meets a tensor or a large numpy array it holds a number, a type and a shape. `pack` says which memory belongs
to which number; `unpack` builds the batch on memory that holds those bytes.

What the training process receives is as with torch: strides are kept, tensors that overlap in memory still
do, the same object twice is one object. Small tensors are copied out, so that somebody who keeps the labels
of an epoch does not keep the images.
"""

from __future__ import annotations

import copyreg
import ctypes
import io
import pickle
from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import numpy as np
import torch

COPIED_BYTES = 32 << 10
"""Tensors and arrays up to this size are copied by the receiver and keep nothing else alive."""

_NAMES = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
)
_DTYPES: tuple[torch.dtype, ...] = tuple(getattr(torch, name) for name in _NAMES if hasattr(torch, name))
_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}
_FOREIGN = (torch.Tensor, torch.UntypedStorage, torch.TypedStorage)
_CPU = torch.device("cpu")

# As multiprocessing's own pickler has it, without making it anew for every item.
_REDUCERS: Any = ChainMap(
    ForkingPickler._extra_reducers,  # type: ignore[attr-defined]  # not in the stubs
    copyreg.dispatch_table,
)

LARGE_BYTES = 4 << 20
"""Above this, copying takes longer than passing a file descriptor."""
_MOST_SPREAD = 4
"""Tensors that overlap are sent with all of their storage, unless it is so many times what they show."""


class Unfit(Exception):
    """The batch holds something that only torch's own way of sending can send."""


class _Overlap(Exception):
    """Two tensors show the same memory."""


class Region(NamedTuple):
    """Memory that belongs to a batch; `owner` keeps it alive."""

    owner: object
    address: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Packed:
    """The tree of a batch as `stream`, and the memory of its arrays by their number in it."""

    stream: bytes
    regions: list[Region] = field(default_factory=list)


def pickled(item: Any) -> bytes:
    """Return what multiprocessing would send for `item`."""
    file = io.BytesIO()
    _Pickler(file).dump(item)
    return file.getvalue()


def has_code(dtype: torch.dtype) -> bool:
    """Whether a plain tensor of this type can be packed."""
    return dtype in _CODES


def pack(item: Any) -> Packed:
    """Take the arrays out of anything that can be pickled.

    Raises Unfit where torch's own way has to be taken, and whatever pickling raises.
    """
    try:
        return _Packer().pack(item)
    except _Overlap:
        return _OverlapPacker().pack(item)


class _Pickler(pickle.Pickler):
    dispatch_table = _REDUCERS


class _Packer(_Pickler):
    def __init__(self) -> None:
        self._file = io.BytesIO()
        super().__init__(self._file)
        self.regions: list[Region] = []
        self._shown: dict[int, list[tuple[int, int]]] = {}

    def pack(self, item: Any) -> Packed:
        self.dump(item)
        return Packed(self._file.getvalue(), self.regions)

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is torch.Tensor:
            code = _CODES.get(obj.dtype)
            if code is None or not is_plain(obj):
                raise Unfit("a tensor that is not plain memory of the CPU")
            return self._tensor(obj, code)
        if kind is np.ndarray:
            return self._array(obj)
        if issubclass(kind, _FOREIGN):
            raise Unfit(f"a {kind.__name__}")
        return NotImplemented

    def _tensor(self, tensor: torch.Tensor, code: int) -> Any:
        shape, stride = tuple(tensor.shape), tensor.stride()
        start = tensor.data_ptr()
        size_bytes = tensor.nbytes if tensor.is_contiguous() else _span_bytes(tensor)
        if size_bytes > LARGE_BYTES and tensor.is_shared():  # type: ignore[no-untyped-call]  # untyped in torch
            raise Unfit("much memory that is shared already: torch's own way copies none of it")
        if size_bytes:
            self._show(tensor.untyped_storage()._cdata, start, start + size_bytes)
        return Arrays.tensor, (self._add(tensor, start, size_bytes), code, shape, stride)

    def _show(self, storage: int, start: int, end: int) -> None:
        others = self._shown.get(storage)
        if others is None:
            self._shown[storage] = [(start, end)]
            return
        if any(start < other_end and other_start < end for other_start, other_end in others):
            raise _Overlap
        others.append((start, end))

    def _array(self, array: Any) -> Any:
        # A small one is best inside the pickle. One in pieces or in another byte order comes out of it in one
        # piece and in this machine's order.
        flags, dtype = array.flags, array.dtype
        if array.nbytes <= COPIED_BYTES or dtype.hasobject or not dtype.isnative or not flags.forc:
            return NotImplemented
        number = self._add(array, array.__array_interface__["data"][0], array.nbytes)
        known = dtype.str if dtype.isbuiltin == 1 else dtype
        return Arrays.array, (number, known, array.shape, "C" if flags.c_contiguous else "F")

    def _add(self, owner: object, address: int, size_bytes: int) -> int:
        if size_bytes and not address:
            raise Unfit("a tensor without memory")
        self.regions.append(Region(owner, address, size_bytes))
        return len(self.regions) - 1


class _OverlapPacker(_Packer):
    """Sends whole storages, once each: tensors that share memory share it on the other side."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[int, int] = {}
        self._shown_bytes = 0

    def pack(self, item: Any) -> Packed:
        packed = super().pack(item)
        if sum(region.size_bytes for region in packed.regions) > _MOST_SPREAD * self._shown_bytes:
            raise Unfit("tensors that overlap in a much larger storage")
        return packed

    def _tensor(self, tensor: torch.Tensor, code: int) -> Any:
        storage = tensor.untyped_storage()
        self._shown_bytes += _span_bytes(tensor)
        number = self._numbers.get(storage._cdata)
        if number is None:
            number = self._numbers[storage._cdata] = self._add(tensor, storage.data_ptr(), storage.nbytes())
        place = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        return Arrays.overlapping_tensor, (number, code, *place)

    def _array(self, array: Any) -> Any:
        self._shown_bytes += array.nbytes
        return super()._array(array)


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is its memory, shape and strides and nothing else."""
    return (
        tensor.is_cpu
        and tensor.layout is torch.strided
        and not tensor.requires_grad
        and not tensor.is_nested
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def _span_bytes(tensor: torch.Tensor) -> int:
    """How many bytes lie between the first and the last element, both included."""
    if tensor.numel() == 0:
        return 0
    steps = sum((count - 1) * stride for count, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (steps + 1) * tensor.itemsize


def unpack(stream: bytes, address: int, places: Sequence[tuple[int, int]], hold: Callable[[], Any]) -> Any:
    """Build the batch that `pack` took apart.

    The bytes of number i are `places[i] = (offset, size)` behind `address`. Where the batch uses that memory
    itself, it does so through the buffer that `hold` returns (the memory at `address`, always the same
    object for one batch), and keeps a reference to it.
    """
    return loaded(stream, Arrays(address, places, hold))


def loaded(stream: bytes, arrays: Any) -> Any:
    """Load a stream with `arrays`, which has the methods of `Arrays`, behind its numbers."""
    return _Unpickler(stream, arrays).load()


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: bytes, arrays: Any) -> None:
        super().__init__(io.BytesIO(stream))
        self._arrays = arrays

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__:
            return getattr(self._arrays, name.removeprefix("Arrays."))
        return super().find_class(module, name)


class Arrays:
    """Stands behind the numbers in a stream. The unpickler refers to it, never the other way round: in a
    circle of references they would keep the memory until the garbage collector came by."""

    def __init__(self, address: int, places: Sequence[tuple[int, int]], hold: Callable[[], Any]) -> None:
        self._address = address
        self._places = places
        self._hold = hold
        self._storages: dict[int, torch.UntypedStorage] = {}

    def tensor(self, number: int, code: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
        offset, size_bytes = self._places[number]
        dtype = _DTYPES[code]
        if size_bytes > COPIED_BYTES:
            count = size_bytes // dtype.itemsize
            flat = torch.frombuffer(self._hold(), dtype=dtype, count=count, offset=offset)
            return flat.as_strided_(shape, stride)
        copied = torch.empty_strided(shape, stride, dtype=dtype, device=_CPU)
        if size_bytes:
            ctypes.memmove(copied.data_ptr(), self._address + offset, size_bytes)
        return copied

    def overlapping_tensor(
        self, number: int, code: int, first: int, shape: tuple[int, ...], stride: tuple[int, ...]
    ) -> torch.Tensor:
        if number not in self._storages:
            size_bytes = self._places[number][1]
            whole = self.tensor(number, _CODES[torch.uint8], (size_bytes,), (1,))
            self._storages[number] = whole.untyped_storage()
        empty = torch.empty(0, dtype=_DTYPES[code], device=_CPU)
        return empty.set_(self._storages[number], first, shape, stride)

    def array(self, number: int, dtype: Any, shape: tuple[int, ...], order: Any) -> Any:
        return np.ndarray(shape, dtype, self._hold(), self._places[number][0], order=order)
