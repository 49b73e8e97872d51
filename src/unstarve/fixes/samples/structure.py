"""The structure of a sample: containers around numbered values.

A sample is a tree of tuples, lists, dicts and named tuples. `take_apart` numbers its values from the left
and returns the tree without them; `builder` returns the function that puts values back. The cache, packed
files and tensor files all use this tree. They differ in what they note about a value (a *leaf*) and in how
they write the tree down:

cache         `leaves.Leaf`: type and shape of a value, the same for all samples; pickled
tensor files  `leaves.Leaf` too, parsed from the text that the format readers return (`file_structure.py`)
packed files  `packed_schema.PackedLeaf`: type and number of dimensions, because shapes vary by sample; JSON
              that anyone may have written
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeAlias, TypeVar

L = TypeVar("L")

# A list of a thousand token ids is one value, not a structure; a table may well have a hundred fields.
_MAX_SEQUENCE_LENGTH = 32
_MAX_DICT_LENGTH = 256


@dataclass(frozen=True)
class Node:
    """A container: its exact type, its keys (None for sequences) and its children."""

    kind: type[Any]
    keys: tuple[Any, ...] | None
    children: tuple[Tree, ...]


Tree: TypeAlias = "Node | int"
"""A container, or the number of a value."""

KindOf: TypeAlias = Callable[[Any, int], "type[Any] | None"]
"""From a value and its depth to the type of container it is treated as; None for a leaf."""


@dataclass(frozen=True)
class Structure(Generic[L]):
    """A tree with a description of each value. Hashable; `sample` and `batch` are built once and reused."""

    tree: Tree
    leaves: tuple[L, ...]

    def __reduce__(self) -> Any:
        return type(self), (self.tree, self.leaves)  # without the cached builders

    @cached_property
    def sample(self) -> Callable[[Sequence[Any]], Any]:
        """A function that puts values into a sample's containers."""
        return builder(self.tree)

    @cached_property
    def batch(self) -> Callable[[Sequence[Any]], Any]:
        """A function that puts batched values into the containers that `default_collate` makes."""
        return builder(collated(self.tree))


def take_apart(sample: Any, kind_of: KindOf) -> tuple[Tree, list[Any]]:
    """Return a sample's tree and its values in order. `kind_of` decides what counts as a container."""
    values: list[Any] = []
    return _take_apart(sample, kind_of, 0, values), values


def _take_apart(sample: Any, kind_of: KindOf, depth: int, values: list[Any]) -> Tree:
    kind = kind_of(sample, depth)
    if kind is None:
        values.append(sample)
        return len(values) - 1
    if issubclass(kind, dict):
        keys = tuple(sample)
        inside = (sample[key] for key in keys)
        return Node(kind, keys, tuple(_take_apart(each, kind_of, depth + 1, values) for each in inside))
    return Node(kind, None, tuple(_take_apart(each, kind_of, depth + 1, values) for each in sample))


def tree_of(sample: Any) -> tuple[Tree, list[Any]]:
    """Take apart a sample of any dataset. Long lists and large dicts are values, not containers."""
    return take_apart(sample, _container_kind)


def _container_kind(value: Any, depth: int) -> type[Any] | None:
    kind = type(value)
    if kind in (dict, OrderedDict):
        return kind if len(value) <= _MAX_DICT_LENGTH else None
    if kind in (tuple, list) or is_named_tuple(kind):
        return kind if len(value) <= _MAX_SEQUENCE_LENGTH else None
    return None


def is_named_tuple(kind: type[Any]) -> bool:
    """Whether a type was made by `namedtuple` or `NamedTuple`."""
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def values_like(tree: Tree, sample: Any) -> list[Any] | None:
    """Return the values of a sample that has this tree; None if it has another."""
    values: list[Any] = []
    return values if _collect_like(tree, sample, values) else None


def _collect_like(tree: Tree, sample: Any, values: list[Any]) -> bool:
    if isinstance(tree, int):
        values.append(sample)
        return True
    if type(sample) is not tree.kind or len(sample) != len(tree.children):
        return False
    if tree.keys is not None:
        if tuple(sample) != tree.keys:
            return False
        sample = sample.values()
    return all(_collect_like(child, each, values) for child, each in zip(tree.children, sample, strict=True))


def builder(tree: Tree) -> Callable[[Sequence[Any]], Any]:
    """Return a function that puts values into the tree's containers."""
    if isinstance(tree, int):
        return lambda values: values[tree]
    if tree.children == tuple(range(len(tree.children))):  # flat: no recursion needed
        if tree.kind in (tuple, list):
            return tree.kind
        if tree.keys is not None:
            kind, keys = tree.kind, tree.keys
            return lambda values: kind(zip(keys, values, strict=True))
    return lambda values: build(tree, values)


def build(tree: Tree, values: Sequence[Any]) -> Any:
    """Put values into the tree's containers."""
    if isinstance(tree, int):
        return values[tree]
    inside = [build(child, values) for child in tree.children]
    if tree.keys is not None:
        return tree.kind(zip(tree.keys, inside, strict=True))
    return tree.kind(*inside) if is_named_tuple(tree.kind) else tree.kind(inside)


def collated(tree: Tree) -> Tree:
    """Return the tree of a batch. Like `default_collate`: tuples become lists, all else keeps its type."""
    if isinstance(tree, int):
        return tree
    return Node(list if tree.kind is tuple else tree.kind, tree.keys, tuple(map(collated, tree.children)))


def is_plain(tree: Tree) -> bool:
    """Whether all containers are tuples, lists and dicts."""
    return isinstance(tree, int) or (tree.kind in (tuple, list, dict) and all(map(is_plain, tree.children)))


def inside_sequence(tree: Tree, in_sequence: bool = False) -> list[bool]:
    """Return for each value, in order, whether its own container is a sequence."""
    if isinstance(tree, int):
        return [in_sequence]
    return [flag for child in tree.children for flag in inside_sequence(child, tree.keys is None)]


def nodes_of(tree: Tree, path: str = "") -> Iterator[tuple[str, Tree]]:
    """Yield every container and value with its path in the sample: ``[0]['image']``, empty for the root."""
    yield path, tree
    if isinstance(tree, Node):
        for at, child in zip(tree.keys or range(len(tree.children)), tree.children, strict=True):
            yield from nodes_of(child, f"{path}[{at!r}]")
