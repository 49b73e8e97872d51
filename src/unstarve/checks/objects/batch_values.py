"""The numbers and texts of a batch: how many bytes they take, and whether two batches are the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from unstarve.checks.objects.attributes import stored

_DEEPEST = 8


def leaves(batch: Any, depth: int = _DEEPEST) -> Iterator[Any]:
    """The tensors, arrays, numbers and texts of a batch, in order."""
    if isinstance(batch, (torch.Tensor, np.ndarray, str, bytes, int, float)):
        yield batch
    elif depth > 0 and batch is not None:
        items = batch.values() if isinstance(batch, dict) else batch
        if not isinstance(batch, (dict, list, tuple)):
            items = stored(batch).values()
        for item in items:
            yield from leaves(item, depth - 1)


def tensors(batch: Any) -> list[torch.Tensor]:
    """The tensors of a batch, in order."""
    return [leaf for leaf in leaves(batch) if isinstance(leaf, torch.Tensor)]


def batch_bytes(batch: Any) -> int:
    """Bytes of a batch's tensors, which a worker hands over in shared memory."""
    return sum(tensor.nbytes for tensor in tensors(batch) if tensor.layout == torch.strided)


def arrays(batch: Any) -> list[np.ndarray[Any, Any]]:
    """A batch as arrays, to compare; without tensors that numpy cannot hold."""
    found, plain = [], []
    for leaf in leaves(batch):
        if isinstance(leaf, np.ndarray):
            found.append(leaf)
        elif not isinstance(leaf, torch.Tensor):
            plain.append(leaf)
        elif leaf.device.type == "cpu" and leaf.layout == torch.strided:
            values = leaf.detach().resolve_conj().resolve_neg()
            try:
                found.append((values.float() if values.dtype == torch.bfloat16 else values).numpy())
            except (TypeError, RuntimeError):
                continue
    return [*found, np.array([str(leaf) for leaf in plain])] if plain else found


def rows_differ(array: np.ndarray[Any, Any]) -> bool:
    """Whether the rows of an array are not all the same."""
    return array.ndim > 0 and len(array) > 1 and bool((array[1:] != array[:1]).any())


def samples_differ(batch: Any) -> bool:
    """Whether a batch holds different samples: equal batches of constant data prove nothing."""
    return any(rows_differ(array) for array in arrays(batch))


def same_values(one: Any, other: Any) -> bool:
    """Whether two batches hold the same values."""
    left, right = arrays(one), arrays(other)
    return len(left) == len(right) > 0 and all(map(np.array_equal, left, right))
