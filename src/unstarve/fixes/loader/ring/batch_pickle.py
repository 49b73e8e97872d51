"""A batch ↔ a pickle of its tree, with the memory of its arrays beside it.

The pickle is the one torch's loader would send, so every object travels as it does there, except that a
tensor or a large numpy array is reduced to a number, a type and a shape. `pack` returns the memory for each
number; `loaded` builds the batch on memory that holds those bytes.

The training process receives what torch would give it: strides are kept, tensors that overlap still do, and
the same object twice is one object. Small tensors are copied out, so keeping the labels of an epoch does not
keep its images.

Batch after batch is the same tree with the same types and shapes; only the bytes differ. `StreamCache`, in a
worker, reuses the stream that `pack` made for such a batch; `BuildPlans`, in the training process, builds it
unpickled.
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

# The dispatch table of multiprocessing's pickler, without building it anew for every item.
_REDUCERS: Any = ChainMap(
    ForkingPickler._extra_reducers,  # type: ignore[attr-defined]  # not in the stubs
    copyreg.dispatch_table,
)

LARGE_BYTES = 4 << 20
"""Above this, copying takes longer than passing a file descriptor."""
_MAX_SPREAD = 4
"""Overlapping tensors are sent with their whole storage, up to this many times the bytes they show."""


class NotPackable(Exception):
    """The batch holds something that only torch's own way can send."""


class _Overlap(Exception):
    """Two tensors show the same memory."""


class BatchRegion(NamedTuple):
    """Memory that belongs to a batch; `owner` keeps it alive."""

    owner: object
    address: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """The tree of a batch as `stream`, and the memory of its arrays by their number in it."""

    stream: bytes
    regions: list[BatchRegion] = field(default_factory=list)


def pickled(item: Any) -> bytes:
    """Return the pickle that multiprocessing would send for `item`."""
    file = io.BytesIO()
    _BatchPickler(file).dump(item)
    return file.getvalue()


def has_code(dtype: torch.dtype) -> bool:
    """Whether a plain tensor of this type can be packed."""
    return dtype in _CODES


def pack(item: Any) -> PackedBatch:
    """Take the arrays out of anything that can be pickled.

    Raises NotPackable if `item` must be sent torch's own way, and whatever pickling raises.
    """
    try:
        return _Packer().pack(item)
    except _Overlap:
        return _OverlapPacker().pack(item)


class _BatchPickler(pickle.Pickler):
    dispatch_table = _REDUCERS


class _Packer(_BatchPickler):
    def __init__(self) -> None:
        self._file = io.BytesIO()
        super().__init__(self._file)
        self.regions: list[BatchRegion] = []
        self._shown: dict[int, list[tuple[int, int]]] = {}

    def pack(self, item: Any) -> PackedBatch:
        self.dump(item)
        return PackedBatch(self._file.getvalue(), self.regions)

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is torch.Tensor:
            code = _CODES.get(obj.dtype)
            if code is None or not is_plain(obj):
                raise NotPackable("a tensor that is not plain CPU memory")
            return self._tensor(obj, code)
        if kind is np.ndarray:
            return self._array(obj)
        if issubclass(kind, _FOREIGN):
            raise NotPackable(f"a {kind.__name__}")
        return NotImplemented

    def _tensor(self, tensor: torch.Tensor, code: int) -> Any:
        shape, stride = tuple(tensor.shape), tensor.stride()
        start = tensor.data_ptr()
        size_bytes = tensor.nbytes if tensor.is_contiguous() else _span_bytes(tensor)
        if size_bytes > LARGE_BYTES and tensor.is_shared():  # type: ignore[no-untyped-call]  # untyped in torch
            raise NotPackable("a large tensor in shared memory: torch's own way does not copy it")
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
        # A small array is best inside the pickle. One that is strided or in another byte order is made
        # contiguous and native by pickling.
        flags, dtype = array.flags, array.dtype
        if array.nbytes <= COPIED_BYTES or dtype.hasobject or not dtype.isnative or not flags.forc:
            return NotImplemented
        number = self._add(array, array.__array_interface__["data"][0], array.nbytes)
        known = dtype.str if dtype.isbuiltin == 1 else dtype
        return Arrays.array, (number, known, array.shape, "C" if flags.c_contiguous else "F")

    def _add(self, owner: object, address: int, size_bytes: int) -> int:
        if size_bytes and not address:
            raise NotPackable("a tensor without memory")
        self.regions.append(BatchRegion(owner, address, size_bytes))
        return len(self.regions) - 1


class _OverlapPacker(_Packer):
    """Sends whole storages, once each: tensors that share memory share it on the other side."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[int, int] = {}
        self._shown_bytes = 0

    def pack(self, item: Any) -> PackedBatch:
        packed = super().pack(item)
        if sum(region.size_bytes for region in packed.regions) > _MAX_SPREAD * self._shown_bytes:
            raise NotPackable("overlapping tensors in a much larger storage")
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
    """Whether memory, shape and strides are all there is to a tensor."""
    return (
        tensor.is_cpu
        and tensor.layout is torch.strided
        and not tensor.requires_grad
        and not tensor.is_nested
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def _span_bytes(tensor: torch.Tensor) -> int:
    """Bytes from the first to the last element, both included."""
    if tensor.numel() == 0:
        return 0
    steps = sum((count - 1) * stride for count, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (steps + 1) * tensor.itemsize


def loaded(stream: bytes, arrays: Any) -> Any:
    """Build the batch of a stream; `arrays`, an object with the methods of `Arrays`, resolves its numbers."""
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
    """The arrays for the numbers in a stream.

    The bytes of number i are at `address + offset` with `places[i] = (offset, size)`. A batch that uses that
    memory directly does so through the buffer that `hold` returns (always the same object for one batch) and
    keeps a reference to it. The unpickler refers to this object, never the other way round: a reference cycle
    would keep the memory until the garbage collector runs.
    """

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


_MAX_REMEMBERED = 64
"""Most structures remembered: a loader whose batches all differ must not fill the memory."""
_MAX_DEPTH = 16


class StreamCache:
    """The streams of earlier batches, by the batch's structure."""

    def __init__(self) -> None:
        self._streams: dict[tuple[Any, ...], bytes | None] = {}

    def pack(self, batch: Any) -> PackedBatch | None:
        """Return what `pack` would; None for a structure that was not seen before."""
        structure: list[Any] = []
        tensors: list[torch.Tensor] = []
        if not _describe(batch, structure, tensors, _MAX_DEPTH) or _share_memory(tensors):
            return None
        key = tuple(structure)
        if key not in self._streams:
            if len(self._streams) >= _MAX_REMEMBERED:
                self._streams.clear()
            self._streams[key] = None
            return None
        stream = self._streams[key]
        if stream is None:
            stream = self._streams[key] = pack(batch).stream
        return PackedBatch(
            stream, [BatchRegion(tensor, tensor.data_ptr(), tensor.nbytes) for tensor in tensors]
        )


def _describe(node: Any, structure: list[Any], tensors: list[torch.Tensor], depth: int) -> bool:
    """Append all that determines the pickle of a tree; False if it depends on more than shapes."""
    kind = type(node)
    if kind is torch.Tensor:
        tensors.append(node)
        structure.append((node.dtype, node.shape, node.stride()))
        return _is_simple(node)
    if kind is dict:
        structure.append((kind, *node))
        if not all(type(key) is str for key in node):
            return False
        node = node.values()
    elif kind is list or kind is tuple:
        structure.append((kind, len(node)))
    else:
        return False
    # An empty container could be one object in two places.
    return bool(node) and depth > 0 and all(_describe(item, structure, tensors, depth - 1) for item in node)


def _is_simple(tensor: torch.Tensor) -> bool:
    """Whether `pack` would take its memory as it is. Large tensors need a closer look."""
    return (
        has_code(tensor.dtype)
        and is_plain(tensor)
        and tensor.is_contiguous()
        and 0 < tensor.nbytes <= LARGE_BYTES
        and tensor.data_ptr() != 0
    )


def _share_memory(tensors: list[torch.Tensor]) -> bool:
    return len({tensor.untyped_storage()._cdata for tensor in tensors}) < len(tensors)


Plan = Callable[[Arrays], Any]


class BuildPlans:
    """Builds repeated batches without unpickling their streams."""

    def __init__(self) -> None:
        self._plans: dict[bytes, Plan] = {}

    def build(self, stream: bytes, arrays: Arrays) -> Any:
        """Return the batch of a stream made by `StreamCache.pack`, on `arrays`."""
        plan = self._plans.get(stream)
        if plan is None:
            if len(self._plans) >= _MAX_REMEMBERED:
                self._plans.clear()
            plan = self._plans[stream] = _planned(loaded(stream, _Blanks))
        return plan(arrays)


class _Blank(NamedTuple):
    """The place of a tensor, and the arguments for `Arrays.tensor`."""

    args: tuple[Any, ...]


class _Blanks:
    @staticmethod
    def tensor(*args: Any) -> _Blank:
        return _Blank(args)


def _planned(tree: Any) -> Plan:
    if type(tree) is _Blank:
        args = tree.args
        return lambda arrays: arrays.tensor(*args)
    if type(tree) is dict:
        items = [(key, _planned(item)) for key, item in tree.items()]
        return lambda arrays: {key: plan(arrays) for key, plan in items}
    plans = [_planned(item) for item in tree]
    if type(tree) is tuple:
        return lambda arrays: tuple([plan(arrays) for plan in plans])
    return lambda arrays: [plan(arrays) for plan in plans]
