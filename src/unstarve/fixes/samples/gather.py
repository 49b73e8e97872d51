"""`gather`: indexed rows of an in-memory dataset → one batch, in a single call.

For a dataset in one array, the stock loader makes one Python call per sample and then collates them all. With
`gather(images, indices)` a batch is a single copy.

All checks are made here, before the compiled function or its Python twin is called, so that both accept and
refuse the same arguments; only the bounds of the index are checked by each of them.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, overload

import numpy as np
from numpy.typing import NDArray

from unstarve.fixes.samples.dtypes import INTEGER_OF_SIZE
from unstarve.native import native

if TYPE_CHECKING:
    import torch

Array: TypeAlias = NDArray[Any]
Index: TypeAlias = "Sequence[int] | Array | torch.Tensor"

# numpy types whose bytes the compiled function may see as they are; others are shown to it as uint8.
_PLAIN_TYPES = frozenset("?bBhHiIlLqQefdFD")


@overload
def gather(source: Array, index: Index, out: Array | None = None, *, threads: int = 0) -> Array: ...
@overload
def gather(
    source: torch.Tensor, index: Index, out: torch.Tensor | None = None, *, threads: int = 0
) -> torch.Tensor: ...
def gather(source: Any, index: Index, out: Any = None, *, threads: int = 0) -> Any:
    """Copy the rows of `source` at `index` into one contiguous batch and return it.

    `source` is a C-contiguous numpy array or CPU tensor with at least one dimension; its rows are along the
    first. `index` is a one-dimensional list, array or tensor of integers; negative ones count from the end.
    `out`, of the source's kind and type and the batch's shape, is filled and returned; without it a new array
    or tensor is made. Bytes are copied: gradients do not flow through.

    `threads` is the most threads to use. 0 chooses: one if torch is set to one thread, as in loader workers,
    else a few. Small batches are always copied by the calling thread. The compiled function releases the GIL
    while it copies; its Python twin uses one thread.

    Raises IndexError for an index outside the source, in which case `out` is untouched; TypeError and
    ValueError for arguments that do not fit together. A source that is not C-contiguous is refused, because
    it would be copied as a whole for every batch: make it contiguous once.
    """
    thread_limit = _thread_limit(threads)
    rows = _as_array(source, "source")
    if rows.ndim == 0:
        raise ValueError("source must have at least one dimension")
    if not rows.flags.c_contiguous:
        remedy = "source.contiguous()" if _is_tensor(source) else "numpy.ascontiguousarray(source)"
        raise ValueError(f"source must be C-contiguous: call {remedy} once and gather from the result")
    positions = _as_positions(index)
    if out is None:
        out = _empty_batch(source, len(positions))
        batch = _as_array(out, "out")
    else:
        batch = _checked_out(out, source, rows, positions)

    compiled = native()
    if compiled is None:
        _take(rows, positions, batch)
    else:
        compiled.gather(_plain(rows), positions, _plain(batch), thread_limit)
    return out


def gather_at(memory: NDArray[np.uint8], starts: NDArray[np.int64], out: NDArray[np.uint8]) -> None:
    """Copy bytes of `memory` from each of `starts` into a row of `out`, in the calling thread.

    All are C-contiguous; `out` has a row for each start. Raises IndexError for a row that ends outside
    memory.
    """
    compiled = native()
    if not out.size:
        return
    if compiled is not None:
        compiled.gather_at(memory, starts, out)
        return
    _take(np.lib.stride_tricks.sliding_window_view(memory, out.shape[1]), starts, out)


def _take(rows: Array, positions: NDArray[np.int64], batch: Array) -> None:
    """Do in Python what the compiled function does."""
    count = len(rows)
    bad = (positions < -count) | (positions >= count)
    if bad.any():
        at = int(bad.argmax())
        raise IndexError(f"index {positions[at]} at position {at} is out of bounds for {count} rows")
    # With mode="raise" numpy would gather into a hidden buffer first; the indices are checked already.
    np.take(rows, positions, axis=0, out=batch, mode="wrap")


def _is_tensor(value: object) -> TypeGuard[torch.Tensor]:
    torch = sys.modules.get("torch")  # a caller with a tensor has imported torch
    return torch is not None and isinstance(value, torch.Tensor)


def _as_array(value: object, name: str) -> Array:
    """Return a numpy view of an array's or tensor's memory; types numpy lacks are viewed as integers."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError(f"{name} must not hold Python objects, got {value.dtype}")
        return value if type(value) is np.ndarray else value.view(np.ndarray)
    if not _is_tensor(value):
        raise TypeError(f"{name} must be a numpy array or a torch tensor, got {type(value).__name__}")
    if not value.is_cpu:
        raise ValueError(f"{name} must be on the CPU, got {value.device}")
    try:
        return _tensor_as_array(value.detach() if value.requires_grad else value)
    except (RuntimeError, TypeError) as error:  # sparse, quantized, lazily conjugated …
        raise TypeError(f"{name} must be a plain dense tensor: {error}") from error


def _tensor_as_array(tensor: torch.Tensor) -> Array:
    array: Array
    try:
        array = tensor.numpy()
    except TypeError:  # numpy does not know the type: bfloat16, float8
        integer = getattr(sys.modules["torch"], INTEGER_OF_SIZE[tensor.element_size()])
        array = tensor.view(integer).numpy()
    return array


def _as_positions(index: Index) -> NDArray[np.int64]:
    positions: Array = index.numpy(force=True) if _is_tensor(index) else np.asarray(index)
    if positions.ndim != 1:
        raise ValueError(f"index must have one dimension, got {positions.ndim}")
    if positions.dtype == np.int64:
        return np.ascontiguousarray(positions)
    if positions.size == 0 and not hasattr(index, "dtype"):
        return np.empty(0, np.int64)  # numpy makes floats of an empty list
    if positions.dtype.kind not in "iu" or not np.can_cast(positions.dtype, np.int64):
        raise TypeError(f"index must hold integers that fit int64, got {positions.dtype}")
    return np.ascontiguousarray(positions, np.int64)


def _empty_batch(source: Array | torch.Tensor, count: int) -> Array | torch.Tensor:
    if isinstance(source, np.ndarray):
        return np.empty((count, *source.shape[1:]), source.dtype)
    return sys.modules["torch"].empty((count, *source.shape[1:]), dtype=source.dtype)  # type: ignore[no-any-return] # sys.modules is untyped


def _checked_out(
    out: object, source: Array | torch.Tensor, rows: Array, positions: NDArray[np.int64]
) -> Array:
    batch = _as_array(out, "out")
    shape = (len(positions), *rows.shape[1:])
    if isinstance(out, np.ndarray) != isinstance(source, np.ndarray):
        raise TypeError("out and source must both be numpy arrays or both be torch tensors")
    dtype = getattr(out, "dtype")  # noqa: B009  # out is an array or a tensor by now, which mypy cannot see
    if dtype != source.dtype:
        raise TypeError(f"out must have source's type {source.dtype}, got {dtype}")
    if batch.shape != shape:
        raise ValueError(f"out must have the shape {shape}, got {batch.shape}")
    if not batch.flags.c_contiguous:
        raise ValueError("out must be C-contiguous")
    if not batch.flags.writeable:
        raise ValueError("out must be writable")
    if _is_tensor(out) and out.requires_grad:
        raise ValueError("out must not require gradients: writes to it are not tracked")
    # may_share_memory compares address ranges, which is exact for contiguous arrays.
    if np.may_share_memory(rows, batch):
        raise ValueError("out must not overlap source")
    if np.may_share_memory(positions, batch):
        raise ValueError("out must not overlap index")
    return batch


def _plain(array: Array) -> Array:
    """View dates, records, strings and foreign byte orders as bytes, for the compiled function."""
    if array.dtype.char in _PLAIN_TYPES and array.dtype.isnative:
        return array
    return array[..., np.newaxis].view(np.uint8)


def _thread_limit(threads: int) -> int:
    limit = operator.index(threads)
    if limit < 0:
        raise ValueError(f"threads must be >= 0 (0: choose), got {limit}")
    torch = sys.modules.get("torch")
    if limit == 0 and torch is not None and torch.get_num_threads() == 1:
        return 1
    return limit
