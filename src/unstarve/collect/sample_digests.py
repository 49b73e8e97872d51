"""A digest of every sample that reaches training, for data that has no indices (`unstarve run --ledger`)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
import torch

from unstarve.model.sample_counts import DIGEST_BYTES

_MOST_ROW_BYTES = 1 << 16
"""Of a field of a sample; what lies beyond does not count."""
_MOST_SAMPLES = 1 << 20
"""Of one process; what comes later is not digested."""


class SampleDigests:
    """Writes the digests of one process, batch by batch."""

    def __init__(self, note: Callable[..., None], lose: Callable[[str], None]) -> None:
        self._note = note
        self._lose = lose
        self._left = _MOST_SAMPLES

    def add(self, loader: int, epoch: int, task: int, batch: Any, size: int) -> None:
        """A batch of `size` samples was delivered."""
        if size <= 0 or self._left <= 0:
            return
        self._left -= size
        if self._left <= 0:
            self._lose(f"the ledger covers the first {_MOST_SAMPLES} samples only")
        rows = digests(batch, size)
        if rows is not None:
            text = base64.b64encode(b"".join(rows)).decode()
            self._note("digests", loader=loader, epoch=epoch, task=max(task, 0), digests=text)


def digests(batch: Any, size: int) -> list[bytes] | None:
    """A digest of each sample of a batch, from all its fields; None when no field has a row per sample."""
    hashes = [blake2b(digest_size=DIGEST_BYTES) for _ in range(size)]
    found = False
    for field in _fields(batch):
        rows = _rows(field, size)
        if rows is not None:
            found = True
            for one, row in zip(hashes, rows, strict=True):
                one.update(row)
    return [one.digest() for one in hashes] if found else None


def _fields(batch: Any) -> Iterator[Any]:
    if isinstance(batch, Mapping):
        for value in batch.values():
            yield from _fields(value)
    elif isinstance(batch, tuple) or (isinstance(batch, list) and batch and not _is_plain(batch[0])):
        for value in batch:
            yield from _fields(value)
    else:
        yield batch


def _rows(field: Any, size: int) -> list[bytes] | None:
    if isinstance(field, torch.Tensor):
        if field.layout is not torch.strided or field.device.type != "cpu" or field.ndim == 0:
            return None
        rows = field.detach().contiguous().reshape(len(field), -1) if field.numel() else None
        field = None if rows is None else rows.view(torch.uint8).numpy()
    if isinstance(field, np.ndarray) and field.ndim and len(field) == size and field.dtype != object:
        flat = np.ascontiguousarray(field).reshape(size, -1).view(np.uint8)
        return [row.tobytes() for row in flat[:, :_MOST_ROW_BYTES]]
    if isinstance(field, list) and len(field) == size and all(map(_is_plain, field)):
        return [repr(one).encode(errors="replace")[:_MOST_ROW_BYTES] for one in field]
    return None


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, bytes, int, float, bool))
