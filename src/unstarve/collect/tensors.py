"""How many tensors a batch holds: each of them travels from a worker as a message of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

_MOST_ITEMS = 10_000
"""A batch of more parts than this is not walked to its end."""


def count_tensors(batch: Any) -> int | None:
    """Tensors in nested mappings, lists and tuples; None when there are too many parts to look at."""
    count = seen = 0
    pending = [batch]
    while pending:
        item = pending.pop()
        seen += 1
        if seen > _MOST_ITEMS:
            return None
        if isinstance(item, torch.Tensor):
            count += 1
        elif isinstance(item, Mapping):
            pending.extend(item.values())
        elif isinstance(item, (list, tuple)):
            pending.extend(item)
    return count
