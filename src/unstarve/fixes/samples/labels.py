"""A label per file: for one sample, and for a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate

from unstarve.errors import UsageError


class Labels:
    """Labels by position. Numbers are in one tensor: a list would be copied into every worker."""

    def __init__(self, labels: Any, count: int) -> None:
        if len(labels) != count:
            raise UsageError(f"labels must have one entry per file, got {len(labels)} for {count} files")
        self._tensor: torch.Tensor | None = None
        self._are_numbers = False
        self._list: list[Any] = []
        if isinstance(labels, torch.Tensor | np.ndarray):
            self._tensor = torch.as_tensor(labels).contiguous()
            return
        listed = list(labels)
        kinds = {type(label) for label in listed}
        if len(kinds) == 1 and kinds <= {int, float, bool}:
            self._tensor = default_collate(listed)
            self._are_numbers = True
        else:
            self._list = listed

    def one(self, position: int) -> Any:
        """Return the label as it was passed; a row of a tensor or an array."""
        if self._tensor is None:
            return self._list[position]
        label = self._tensor[position]
        return label.item() if self._are_numbers else label

    def many(self, positions: NDArray[np.int64]) -> Any:
        """Return what `default_collate` makes of these labels as the second value of samples."""
        if self._tensor is None:
            collated: Any = tuple(self._list[position] for position in positions.tolist())
            return default_collate(collated)
        return self._tensor.index_select(0, torch.from_numpy(positions))
