"""Everything that a dataset, a transform or a function holds, each with the name by which its user knows it.

Only stored values are read: no property, no ``__getattr__`` and no ``__getitem__`` of the user's runs.
"""

from __future__ import annotations

import functools
import io
import logging
import numbers
import threading
import types
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader

_LEAVES = (
    *(str, bytes, bytearray, numbers.Number, type, types.ModuleType, types.CodeType),
    *(torch.Tensor, np.ndarray, np.dtype, torch.Generator, io.IOBase),
    *(threading.Thread, logging.Logger, logging.Handler, DataLoader),
)
"""Not looked into: they hold no data, or lead out of the dataset into the rest of the program."""

_LIST_LIKE = (list, tuple, deque, set, frozenset)


class Place(NamedTuple):
    """A value and where it was found."""

    path: str
    """``train_set.transform.transforms[0].rng``"""
    value: Any
    owner: Any
    """The object that holds it, containers aside; None for the root."""
    attribute: str
    """The name of the owner's attribute that leads to it; empty for the root."""
    depth: int


def walk(
    root: Any, name: str, *, max_depth: int = 8, most: int = 20_000, most_items: int = 100
) -> Iterator[tuple[str, Any]]:
    """`root` and everything it holds as (path, value), the nearest first, each object once.

    At most `most` values are looked at, and of a container only the first `most_items`.
    """
    for place in places(root, name, max_depth=max_depth, most=most, most_items=most_items):
        yield place.path, place.value


def places(
    root: Any, name: str, *, max_depth: int = 8, most: int = 20_000, most_items: int = 100
) -> Iterator[Place]:
    """Like `walk`, with the owner of each value."""
    ahead = deque([Place(name, root, None, "", 0)])
    seen: dict[int, Any] = {}  # holds the objects, so that no id is used twice
    while ahead and len(seen) < most:
        place = ahead.popleft()
        if id(place.value) in seen or _is_opaque(type(place.value)):
            continue
        seen[id(place.value)] = place.value
        yield place
        if place.depth < max_depth:
            ahead.extend(held(place, most_items))


def stored(value: Any) -> dict[str, Any]:
    """The attributes stored in `value` itself: its ``__dict__`` and its slots. Nothing of the user's runs."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        found = {}
    attributes = dict(found) if isinstance(found, dict) else {}
    for kind in (kind for kind in type(value).__mro__ if "__slots__" in vars(kind)):
        for key, member in vars(kind).items():
            if isinstance(member, types.MemberDescriptorType):
                try:
                    attributes.setdefault(key, member.__get__(value))
                except AttributeError:  # a slot that is not filled
                    continue
    return attributes


def _is_opaque(kind: type) -> bool:
    """Whether asking for an attribute, or for the class, runs Python code: proxies and lazy objects."""
    return any(
        isinstance(vars(base).get("__getattribute__"), types.FunctionType)
        or isinstance(vars(base).get("__class__"), property)
        for base in kind.__mro__
    )


def held(place: Place, most_items: int) -> Iterator[Place]:
    """What is one step away from `place`."""
    path, value, owner, attribute, depth = place
    if value is None or isinstance(value, _LEAVES):
        return
    if isinstance(value, (dict, *_LIST_LIKE)):  # a container is part of the attribute that leads to it
        for key, item in _items(value, most_items):
            yield Place(f"{path}[{key}]", item, owner, attribute, depth + 1)
    for key, item in _parts(value):
        yield Place(f"{path}.{key}", item, value, key, depth + 1)


def _items(value: Any, most: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        pairs = list(islice(dict.items(value), most))
        return ((repr(key) if isinstance(key, (str, int)) else "…", item) for key, item in pairs)
    kind = next(kind for kind in _LIST_LIKE if isinstance(value, kind))
    items = list(islice(kind.__iter__(value), most))
    return ((str(index) if kind in (list, tuple, deque) else "…", item) for index, item in enumerate(items))


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of an object, what a function closes over, what a partial or a method is bound to."""
    if isinstance(value, types.FunctionType):
        yield from closed_over(value).items()
        yield from _defaults(value).items()
    elif isinstance(value, types.MethodType):
        yield "__self__", value.__self__
    elif isinstance(value, functools.partial):
        yield "func", value.func
        yield from ((f"args[{index}]", item) for index, item in enumerate(value.args))
        yield from value.keywords.items()
    elif not isinstance(value, types.BuiltinFunctionType):
        yield from stored(value).items()


def closed_over(function: types.FunctionType) -> dict[str, Any]:
    """The variables of enclosing functions that `function` uses."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # the variable has no value yet
            continue
    return found


def _defaults(function: types.FunctionType) -> Mapping[str, Any]:
    """``def collate(samples, rng=RNG)`` holds RNG."""
    code, positional = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    tail = names[len(names) - len(positional) :]
    return {**dict(zip(tail, positional, strict=True)), **(function.__kwdefaults__ or {})}
