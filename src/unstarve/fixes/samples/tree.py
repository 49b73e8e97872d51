"""The structure of a sample: tuples, lists and dicts around its values, which are numbered from the left."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

# A list of token ids is one value, not a structure of a thousand; a table may well have a hundred fields.
_LONGEST_LIST = 32
_LARGEST_DICT = 256


@dataclass(frozen=True)
class Node:
    """A container: its exact type, its keys where it has them, and what is in it."""

    kind: type[Any]
    keys: tuple[Any, ...] | None
    children: tuple[Tree, ...]


Tree: TypeAlias = "Node | int"
"""A container, or the number of a value."""

PLAIN = (tuple, list, dict)
"""Containers of which `default_collate` makes lists and dicts."""


def tree_of(sample: Any) -> tuple[Tree, list[Any]]:
    """Take a sample apart: its structure, and its values in order."""
    values: list[Any] = []
    return _tree_of(sample, values), values


def _tree_of(sample: Any, values: list[Any]) -> Tree:
    kind = type(sample)
    if _is_container(kind) and len(sample) <= (_LARGEST_DICT if issubclass(kind, dict) else _LONGEST_LIST):
        keys = tuple(sample) if issubclass(kind, dict) else None
        inside = sample.values() if keys is not None else sample
        return Node(kind, keys, tuple(_tree_of(each, values) for each in inside))
    values.append(sample)
    return len(values) - 1


def _is_container(kind: type[Any]) -> bool:
    return kind in (tuple, list, dict, OrderedDict) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def values_like(tree: Tree, sample: Any) -> list[Any] | None:
    """Return the values of a sample that has this structure, or None where it has another."""
    values: list[Any] = []
    return values if _take_apart(tree, sample, values) else None


def _take_apart(tree: Tree, sample: Any, values: list[Any]) -> bool:
    if isinstance(tree, int):
        values.append(sample)
        return True
    if type(sample) is not tree.kind or len(sample) != len(tree.children):
        return False
    if tree.keys is not None:
        if tuple(sample) != tree.keys:
            return False
        sample = sample.values()
    return all(_take_apart(child, each, values) for child, each in zip(tree.children, sample, strict=True))


def builder(tree: Tree) -> Callable[[Sequence[Any]], Any]:
    """Return a function that puts values back into the structure."""
    if isinstance(tree, int):
        return lambda values: values[tree]
    if tree.children == tuple(range(len(tree.children))):  # flat: no need to ask each child
        if tree.kind in (tuple, list):
            return tree.kind
        if tree.keys is not None:
            kind, keys = tree.kind, tree.keys
            return lambda values: kind(zip(keys, values, strict=True))
    return lambda values: build(tree, values)


def build(tree: Tree, values: Sequence[Any]) -> Any:
    """Put values into the structure, with the containers the sample had."""
    if isinstance(tree, int):
        return values[tree]
    inside = [build(child, values) for child in tree.children]
    if tree.keys is not None:
        return tree.kind(zip(tree.keys, inside, strict=True))
    return tree.kind(*inside) if hasattr(tree.kind, "_fields") else tree.kind(inside)


def batch_builder(tree: Tree) -> Callable[[Sequence[Any]], Any]:
    """Return a function that puts batched values into the containers `default_collate` makes."""
    return builder(collated(tree))


def collated(tree: Tree) -> Tree:
    """Return the structure of a batch: lists where samples have tuples."""
    if isinstance(tree, int):
        return tree
    return Node(list if tree.keys is None else dict, tree.keys, tuple(map(collated, tree.children)))


def is_plain(tree: Tree) -> bool:
    """Whether there is nothing but tuples, lists and dicts."""
    return isinstance(tree, int) or (tree.kind in PLAIN and all(map(is_plain, tree.children)))


def inside_sequence(tree: Tree, in_sequence: bool = False) -> list[bool]:
    """Say of each value, in order, whether the container right around it is a tuple or list."""
    if isinstance(tree, int):
        return [in_sequence]
    return [flag for child in tree.children for flag in inside_sequence(child, tree.keys is None)]
