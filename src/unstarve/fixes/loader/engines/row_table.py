"""Find the rows of a dataset whose samples are rows of tensors in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import StackDataset, Subset, TensorDataset
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

Build = Callable[[Sequence[torch.Tensor]], Any]


@dataclass(frozen=True)
class RowTable:
    """Sample i is row i of each leaf, or row ``positions[i]`` if there are positions."""

    leaves: tuple[torch.Tensor, ...]
    build: Build | None
    """Turns batches of the leaves into the batch of `default_collate`; None: it is the only leaf's batch."""
    positions: NDArray[np.int64] | None = None


def row_table(dataset: Any) -> RowTable | str:
    """Return the rows that are the dataset's samples, or, in one sentence, why there are none."""
    chosen = []
    while _is_plain(dataset, Subset, "__getitem__", "__getitems__", "__len__"):
        chosen.append(dataset.indices)
        dataset = dataset.dataset
    tree = _tree_of(dataset)
    if isinstance(tree, str):
        return tree  # before a look at the indices, which may be millions
    positions: NDArray[np.int64] | range | None = None
    for indices in chosen:
        positions = _within(_as_positions(indices), positions)
        if positions is None:
            return "the indices of a Subset are not a flat list of integers, or are outside its dataset"
    leaves = list(_leaves(tree))
    reason = _why_not_rows(dataset, leaves) or _why_not_collated(tree)
    if reason is not None:
        return reason
    if isinstance(positions, range):
        inside = positions.start >= 0 and positions.stop <= leaves[0].shape[0]
        if positions.step == 1 and inside:
            leaves = [leaf[positions.start : positions.stop] for leaf in leaves]
            positions = None
        else:
            positions = np.arange(positions.start, positions.stop, positions.step)
    return RowTable(tuple(leaf.detach() for leaf in leaves), _build_for(tree), positions)


def _tree_of(dataset: Any) -> Any:
    """Return the dataset's tensors in the structure of its samples, or why there are none."""
    if isinstance(dataset, torch.Tensor):
        return dataset
    if _is_plain(dataset, TensorDataset, "__getitem__", "__getitems__", "__len__"):
        return dataset.tensors
    if _is_plain(dataset, StackDataset, "__getitem__", "__getitems__", "__len__"):
        return _stacked(dataset.datasets)
    return _rows_of(dataset)


def _stacked(datasets: Any) -> Any:
    named = datasets.items() if isinstance(datasets, dict) else enumerate(datasets)
    trees = {name: _tree_of(dataset) for name, dataset in named}
    reason = next((tree for tree in trees.values() if isinstance(tree, str)), None)
    if reason is not None:
        return reason
    return trees if isinstance(datasets, dict) else tuple(trees.values())


def _rows_of(dataset: Any) -> Any:
    """Return `dataset.rows()`, if those are known to be its samples."""
    name = type(dataset).__name__
    home = _home_of(type(dataset), "rows")
    if home is None or not callable(getattr(dataset, "rows", None)):
        return f"{name} does not hold its samples as rows of tensors (no method rows())"
    if not home.__module__.startswith("unstarve.") and not getattr(home, "rows_are_samples", False):
        # A user's method of that name may mean anything, and its rows lack the transforms of a sample.
        return f"{name}.rows() may not be its samples; if they are, set rows_are_samples = True in the class"
    for method in ("__getitem__", "__getitems__", "__len__"):
        overridden = _home_of(type(dataset), method)
        if overridden is not None and not issubclass(home, overridden):
            return f"{name} overrides {method}, and rows() does not know about it"
    tree = dataset.rows()
    return f"{name}.rows() is None at present" if tree is None else tree


def _home_of(cls: type[Any], method: str) -> type[Any] | None:
    return next((base for base in cls.__mro__ if method in vars(base)), None)


def _is_plain(dataset: Any, kind: type[Any], *methods: str) -> bool:
    """Whether the dataset behaves as torch's own class: no subclass overrides one of the methods."""
    return isinstance(dataset, kind) and all(
        getattr(type(dataset), method, None) is getattr(kind, method, None) for method in methods
    )


def _as_positions(indices: Any) -> NDArray[np.int64] | range | None:
    if isinstance(indices, range):
        return indices
    found = np.asarray(indices) if isinstance(indices, (Sequence, np.ndarray, torch.Tensor)) else np.empty(())
    if found.ndim != 1 or (found.size and (found.dtype.kind not in "iu" or found.dtype == np.uint64)):
        return None
    places: NDArray[np.int64] = np.ascontiguousarray(found, np.int64)
    if len(places) and places[-1] - places[0] == len(places) - 1 and (np.diff(places) == 1).all():
        return range(int(places[0]), int(places[-1]) + 1)
    return places


def _within(
    inner: NDArray[np.int64] | range | None, outer: NDArray[np.int64] | range | None
) -> NDArray[np.int64] | range | None:
    """Return positions in a subset's dataset, given positions in the subset; None if one is outside."""
    if outer is None or inner is None:
        return inner
    if isinstance(outer, range) and isinstance(inner, range):
        inside = not len(outer) or (min(outer) >= 0 and max(outer) < len(inner))
        return inner[outer.start : outer.stop : outer.step] if inside and outer.step > 0 else None
    try:
        return np.take(np.asarray(inner, np.int64), np.asarray(outer, np.int64))
    except IndexError:
        return None


def _leaves(tree: Any) -> Iterator[Any]:
    """Everything in the tree that is not a container."""
    if isinstance(tree, (tuple, list)):
        for part in tree:
            yield from _leaves(part)
    elif isinstance(tree, dict):
        yield from _leaves(list(tree.values()))
    else:
        yield tree


def _why_not_rows(dataset: Any, leaves: list[Any]) -> str | None:
    if not leaves:
        return "the dataset's samples hold no tensors"
    for leaf in leaves:
        reason = _why_not_leaf(leaf)
        if reason is not None:
            return reason
    count = len(dataset)
    if any(leaf.shape[0] != count for leaf in leaves):
        return "the dataset's tensors do not have one row for each sample"
    return None


def _why_not_leaf(leaf: Any) -> str | None:
    if type(leaf) is not torch.Tensor:
        return f"the dataset's samples hold {type(leaf).__name__}, not plain tensors"
    if leaf.device.type != "cpu":
        return f"the dataset's tensors are on {leaf.device}, not on the CPU"
    if leaf.layout is not torch.strided or leaf.is_nested or leaf.is_quantized or leaf.dim() == 0:
        return (
            "the dataset's tensors are not rows of plain memory (sparse, nested, quantized or a single value)"
        )
    if leaf.requires_grad:
        return "the dataset's tensors require gradients, which a copy of bytes would lose"
    if not leaf.is_contiguous():
        return "the dataset's tensors are not C-contiguous; call tensor.contiguous() once"
    if leaf.is_conj() or leaf.is_neg():
        return "the dataset's tensors are lazily conjugated or negated; call tensor.resolve_conj() once"
    return None


def _why_not_collated(tree: Any) -> str | None:
    """Say why `default_collate` would not treat each part of a sample as it does out of the box."""
    kinds = {type(part) for part in _parts(tree)}
    for kind in kinds:
        is_named_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
        if kind not in (torch.Tensor, tuple, list, dict) and not is_named_tuple:
            return f"default_collate treats {kind.__name__}, which its samples contain, in a special way"
    for known, collate in default_collate_fn_map.items():
        for kind in kinds:
            if collate is not collate_tensor_fn and issubclass(kind, known):
                return "a custom function is registered with default_collate for these samples"
    return None


def _parts(tree: Any) -> Iterator[Any]:
    yield tree
    for child in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (tuple, list)) else ():
        yield from _parts(child)


def _build_for(tree: Any) -> Build | None:
    """Return a function that assembles the leaves' batches as `default_collate` does: tuples become lists."""
    if isinstance(tree, torch.Tensor):
        return None
    flat = isinstance(tree, list) or type(tree) is tuple
    if flat and all(isinstance(part, torch.Tensor) for part in tree):
        return list
    fill = _filler(tree)
    return lambda tensors: fill(iter(tensors))


def _filler(tree: Any) -> Callable[[Iterator[torch.Tensor]], Any]:
    if isinstance(tree, dict):
        named = {key: _filler(part) for key, part in tree.items()}
        return lambda tensors: {key: fill(tensors) for key, fill in named.items()}
    if isinstance(tree, (tuple, list)):
        fills = [_filler(part) for part in tree]
        if hasattr(tree, "_fields"):
            kind: Any = type(tree)
            return lambda tensors: kind(*[fill(tensors) for fill in fills])
        return lambda tensors: [fill(tensors) for fill in fills]
    return next
