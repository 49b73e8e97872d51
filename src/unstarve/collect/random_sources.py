"""Random numbers that no global generator tells of: generators that a dataset holds, uses or makes.

A dataset's attributes are searched, and the functions that ``__getitem__`` names; nothing is called.
"""

from __future__ import annotations

import dis
import random
import sys
from collections.abc import Iterator
from contextlib import suppress
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch

_MAKES_GENERATOR = frozenset({"default_rng", "RandomState", "SystemRandom", "Random", "urandom", "randbits"})
"""Names in a function that makes a generator for itself, or asks the system."""
_MOST_PARTS = 400
_MOST_ITEMS = 32
_MOST_DEPTH = 6
_NO_PARTS = (str, bytes, int, float, torch.Tensor, type, ModuleType)


def keeps_random_state(dataset: Any) -> bool:
    """Whether samples may differ from epoch to epoch without a draw from a global generator."""
    try:
        return hasattr(dataset, "set_epoch") or any(map(_is_source, _parts(dataset)))
    except Exception:  # a foreign object may raise anything; then it is safer to assume so
        return True


def _is_source(part: Any) -> bool:
    if isinstance(part, FunctionType):
        return not _MAKES_GENERATOR.isdisjoint(part.__code__.co_names)
    numpy = sys.modules.get("numpy.random")
    kinds = () if numpy is None else (numpy.Generator, numpy.RandomState)
    return isinstance(part, (torch.Generator, random.Random, *kinds))


def _parts(dataset: Any) -> Iterator[Any]:
    """The dataset's attributes and the functions it uses, and theirs, as far as a few hundred go."""
    pending: list[tuple[Any, int]] = [(dataset, 0)]
    seen: set[int] = set()
    while pending and len(seen) < _MOST_PARTS:
        part, depth = pending.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        if depth < _MOST_DEPTH and not isinstance(part, _NO_PARTS):
            pending += [(inner, depth + 1) for inner in _inside(part)]


def _inside(part: Any) -> list[Any]:
    if isinstance(part, (list, tuple)):
        return list(part[:_MOST_ITEMS])
    if isinstance(part, dict):
        return list(part.values()) if len(part) <= _MOST_ITEMS else []
    if isinstance(part, FunctionType):
        return _used_by(part)
    if isinstance(part, MethodType):
        return [part.__func__, part.__self__]
    kind = type(part)
    called = [getattr(kind, name, None) for name in ("__getitem__", "__getitems__", "__call__", "forward")]
    own = [one for one in called if isinstance(one, FunctionType)]
    methods = [vars(kind).get(name) for function in own for name in function.__code__.co_names]
    held = list(getattr(part, "__dict__", {}).values())
    return [*held, *own, *(one for one in methods if isinstance(one, FunctionType))]


def _used_by(function: FunctionType) -> list[Any]:
    """What a function of the user takes from around it; a library's own functions are left alone."""
    if "site-packages" in function.__code__.co_filename:
        return []
    cells = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # a variable that is not set yet
            cells.append(cell.cell_contents)
    found = (function.__globals__.get(name) for name in _global_names(function))
    return [*cells, *(one for one in found if one is not None)]


def _global_names(function: FunctionType) -> set[str]:
    """The globals that a function reads; its `co_names` also hold attributes, which may be called alike."""
    return {one.argval for one in dis.get_instructions(function.__code__) if one.opname == "LOAD_GLOBAL"}
