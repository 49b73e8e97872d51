"""What the samples of a dataset have in common, found by looking at a few of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.utils.data import default_collate

from unstarve.fixes.samples.leaves import OBJECT, Kind, Leaf, describe, fitter
from unstarve.fixes.samples.structure import Structure, Tree, collated, is_plain, tree_of, values_like


@dataclass(frozen=True)
class Layout(Structure[Leaf]):
    """The structure and the values that most samples have.

    `batchable`: `default_collate` would return the gathered rows of such samples.
    """

    batchable: bool

    @cached_property
    def in_rows(self) -> tuple[int, ...]:
        """The numbers of the values that lie in rows."""
        return tuple(at for at, leaf in enumerate(self.leaves) if leaf.dtype is not None)

    @cached_property
    def in_blobs(self) -> tuple[int, ...]:
        """The numbers of the values that are kept one by one."""
        return tuple(at for at, leaf in enumerate(self.leaves) if leaf.dtype is None)

    @property
    def row_bytes(self) -> int:
        """What the rows of one sample take."""
        return sum(leaf.row_bytes for leaf in self.leaves)

    def __reduce__(self) -> Any:
        return Layout, (self.tree, self.leaves, self.batchable)  # without what was computed on the way

    def values(self, sample: Any) -> list[Any] | None:
        """Take a sample apart, or return None where it is not like the others."""
        values = values_like(self.tree, sample)
        if values is not None:
            for fits, value in zip(self._fitters, values, strict=True):
                if not fits(value):
                    return None
        return values

    @cached_property
    def _fitters(self) -> list[Callable[[Any], bool]]:
        return [*map(fitter, self.leaves)]

    def __str__(self) -> str:
        return ", ".join(map(str, self.leaves))


def check(sample: Any) -> None:
    """Raise CacheError where a value in the sample cannot be kept."""
    for value in tree_of(sample)[1]:
        describe(value)


def layout_of(samples: Sequence[Any]) -> Layout:
    """Find what samples have in common: structure first, then type and shape of each value."""
    tree, values = tree_of(samples[0])
    leaves = [describe(value) for value in values]
    for sample in samples[1:]:
        other_tree, other_values = tree_of(sample)
        if other_tree != tree:
            return Layout(0, (OBJECT,), batchable=False)
        for at, value in enumerate(other_values):
            if describe(value) != leaves[at]:
                leaves[at] = OBJECT
    return Layout(tree, tuple(leaves), _is_batchable(tree, leaves, samples[0]))


def may_batch(tree: Tree, leaves: Sequence[Leaf]) -> bool:
    """Whether a loader could take a finished batch of such samples at all."""
    if tree == 0 and leaves[0].kind not in (Kind.TENSOR, Kind.ARRAY):
        return False
    return is_plain(tree) and all(leaf.collates for leaf in leaves) and any(leaf.dtype for leaf in leaves)


def _is_batchable(tree: Tree, leaves: Sequence[Leaf], sample: Any) -> bool:
    """Ask `default_collate` itself: what it makes of a batch of two must be what gathering would give."""
    if not may_batch(tree, leaves):
        return False
    try:
        batch = default_collate([sample, sample])
    except Exception:  # whatever it is, the user's own collate function will be asked, not we
        return False
    values = values_like(collated(tree), batch)
    return values is not None and all(map(_is_gathered, leaves, values))


def _is_gathered(leaf: Leaf, batch: Any) -> bool:
    if leaf.kind is Kind.TEXT:
        return isinstance(batch, (tuple, list))
    return type(batch) is torch.Tensor and batch.dtype == leaf.dtype and batch.shape == (2, *leaf.shape)
