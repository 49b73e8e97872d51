"""Datasets in memory for tests: some say where their rows are, some do not."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import Dataset

COUNT = 23
X = torch.arange(COUNT * 6, dtype=torch.float32).reshape(COUNT, 2, 3)
Y = torch.arange(COUNT)


class Rows(Dataset[Any]):
    """A dataset that says where its rows are, in the shape of its samples."""

    rows_are_samples = True

    def __init__(self, tree: Any) -> None:
        self.tree = tree

    def rows(self) -> Any:
        return self.tree

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: Any) -> Any:
        return self._pick(self.tree, index)

    def _pick(self, tree: Any, index: Any) -> Any:
        if isinstance(tree, torch.Tensor):
            return tree[index]
        if isinstance(tree, dict):
            return {key: self._pick(part, index) for key, part in tree.items()}
        parts = [self._pick(part, index) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)


class Plain(Rows):
    """The same samples, of which nothing is known."""

    rows = None  # type: ignore[assignment]
