"""Values that fit no row, as bytes: what pickle makes of them, with tensors as their plain bytes.

pickle alone would write every tensor as a file of its own, in ten times the time and a kilobyte more.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch

from unstarve.fixes.memory.store.layout import Layout
from unstarve.fixes.samples.leaves import Kind, Leaf, as_array
from unstarve.fixes.samples.structure import Node


def loads(data: bytes) -> Any:
    """Return the value that `dumps` made bytes of, also if an earlier unstarve did."""
    try:
        return pickle.loads(data)
    except (ModuleNotFoundError, AttributeError):  # its classes were in other modules then
        return _OldUnpickler(io.BytesIO(data)).load()


class _OldUnpickler(pickle.Unpickler):
    """Finds our own classes by name alone, whatever module they were in when the file was written."""

    def find_class(self, module: str, name: str) -> Any:
        ours = _OURS.get(name) if module.partition(".")[0] == "unstarve" else None
        return super().find_class(module, name) if ours is None else ours


def dumps(value: Any) -> bytes:
    """Return the value as bytes. Raises what pickle raises where it cannot."""
    with io.BytesIO() as file:
        _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
        return file.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if type(value) is not torch.Tensor or not _is_bytes(value):
            return NotImplemented
        return _tensor, (as_array(value.contiguous()).tobytes(), value.dtype, tuple(value.shape))


def _is_bytes(tensor: torch.Tensor) -> bool:
    return (
        tensor.is_cpu
        and tensor.layout is torch.strided
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_nested)
        and not (tensor.is_conj() or tensor.is_neg())
    )


def _tensor(data: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).view(shape)


_OURS: dict[str, Any] = {one.__name__: one for one in (Layout, Node, Leaf, Kind, _tensor)}
