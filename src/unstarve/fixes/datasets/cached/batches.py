"""Finished batches: rows gathered, in the containers that `default_collate` would have made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from unstarve.fixes.datasets.cached.source import Columns
from unstarve.fixes.memory.buffers import Allocator
from unstarve.fixes.memory.store.copies import Copies
from unstarve.fixes.memory.store.layout import Layout
from unstarve.fixes.samples.built_batch import Batched
from unstarve.fixes.samples.leaves import Kind, viewer
from unstarve.fixes.samples.structure import inside_sequence


class Batches:
    """Makes batches of samples that have one layout, where that is `possible`."""

    def __init__(self, layout: Layout) -> None:
        self.possible = layout.batchable
        self._layout = layout
        self._is_bare = layout.tree == 0
        self._is_tensor = self._is_bare and layout.leaves[0].kind is Kind.TENSOR
        # zip makes tuples of what stands side by side in a sequence, which default_collate leaves as they are
        in_sequence = inside_sequence(layout.tree)
        self._text_kinds = [(at, tuple if in_sequence[at] else list) for at in layout.in_blobs]

    def __reduce__(self) -> Any:
        return Batches, (self._layout,)

    def of(self, held: Columns | Copies, indices: list[int], empty: Allocator) -> Batched | None:
        """Gather these samples, all of which are rows; None where an index is something else than an int."""
        values: list[Any] | None = held.rows.gather(indices, empty)
        if values is None:
            return None
        if self._is_bare:
            whole = values[0]
            view = whole.__getitem__ if self._is_tensor else viewer(self._layout.leaves[0], whole)
            return Batched(whole, len(indices), view)
        if self._text_kinds and isinstance(held, Copies):
            values = self._with_texts(values, [held.texts(at) for at in indices])
        return Batched(self._layout.batch(values), len(indices), self._taking_apart(values))

    def _with_texts(self, tensors: list[Any], texts: Sequence[Sequence[Any]]) -> list[Any]:
        values: list[Any] = [None] * len(self._layout.leaves)
        for at, tensor in zip(self._layout.in_rows, tensors, strict=True):
            values[at] = tensor
        for (at, kind), column in zip(self._text_kinds, zip(*texts, strict=True), strict=True):
            values[at] = kind(column)
        return values

    def _taking_apart(self, values: list[Any]) -> Callable[[int], Any]:
        """Return a function that gives the i-th sample of a batch."""
        views = [viewer(leaf, value) for leaf, value in zip(self._layout.leaves, values, strict=True)]
        build = self._layout.sample
        return lambda at: build([view(at) for view in views])
