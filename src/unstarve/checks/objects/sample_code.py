"""What the code that makes samples refers to, read from its bytecode: nothing is run.

The code starts where a worker enters an object (``__getitem__``, ``__iter__``, ``__call__``, …) and includes
the methods and module-level functions it names, however deep. Names are collected whatever they belong to: a
check that is silent because of a name is silent too often rather than too seldom.
"""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import textwrap
import types
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from typing import Any, Generic

import torch
from torch.utils.data import Dataset, IterableDataset

_ENTRIES = ("__getitem__", "__getitems__", "__iter__", "__next__", "__call__", "forward")
_PREPARATION = {
    "__init__",
    "__new__",
    "__post_init__",
    "__init_subclass__",
    "set_epoch",
    "__del__",
    "__repr__",
}
_BASES = (object, Generic, Dataset, IterableDataset, torch.nn.Module)
"""Their methods do nothing of interest."""

_STORES = ("STORE_ATTR", "STORE_GLOBAL")
_MOST_FUNCTIONS = 300

WORKER_NAMES = frozenset({"get_worker_info", "worker_info", "_worker_info", "worker_id", "getpid"})
"""Code that uses one of these may behave differently in each worker."""


@dataclass(slots=True)
class SampleCode:
    """The functions that are reached, and the names they use."""

    functions: list[types.FunctionType] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    """Attributes, methods, globals and imported names."""
    assigned: set[str] = field(default_factory=set)
    """Attributes and module-level names that are assigned."""
    globals: dict[str, Any] = field(default_factory=dict)
    """The module-level values used by these functions."""


def sample_code(value: Any, called: Set[str] = frozenset()) -> SampleCode:
    """What a worker runs of `value`: a dataset, a transform, a function. `called` names further methods."""
    methods = _methods(type(value))
    entries = [name for name in methods if name in _ENTRIES or name in called - _PREPARATION]
    ahead: list[types.FunctionType] = list(_own_functions(value))
    if not ahead:  # an object without an entry is used through any of its methods
        chosen = entries or [name for name in methods if name not in _PREPARATION]
        ahead = [function for name in chosen for function in _run(methods[name])]
    found = SampleCode()
    while ahead and len(found.functions) < _MOST_FUNCTIONS:
        function = ahead.pop()
        if function in found.functions:
            continue
        found.functions.append(function)
        names = _note(function.__code__, found)
        used = {name: function.__globals__[name] for name in names if name in function.__globals__}
        found.globals |= used
        ahead += [other for name in names - _PREPARATION for other in _run(methods.get(name, []))]
        ahead += [other for other in used.values() if isinstance(other, types.FunctionType)]
    return found


def own_attribute(node: ast.AST | None) -> str:
    """``rows`` of ``self.rows``; empty for other code."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return ""


def syntax_tree(function: types.FunctionType) -> ast.FunctionDef | ast.Lambda | None:
    """The function's source, parsed; None where there is none or it is ambiguous."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    wanted = ast.Lambda if function.__name__ == "<lambda>" else ast.FunctionDef
    found = [node for node in ast.walk(tree) if isinstance(node, wanted)]
    named = [node for node in found if getattr(node, "name", function.__name__) == function.__name__]
    return named[0] if len(named) == 1 or (named and wanted is ast.FunctionDef) else None


def _methods(kind: type) -> dict[str, list[types.FunctionType]]:
    """The functions of a class and its bases by name, without those of torch's base classes."""
    methods: dict[str, list[types.FunctionType]] = {}
    for base in kind.__mro__:
        if base in _BASES:
            continue
        for name, member in vars(base).items():
            function = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
            if isinstance(function, types.FunctionType):
                methods.setdefault(name, []).append(function)
    return methods


def _run(overrides: list[types.FunctionType]) -> Iterator[types.FunctionType]:
    """Of a method and those it overrides, the ones that run: each may call the next."""
    for function in overrides:
        yield function
        if not {"super", function.__name__} & set(function.__code__.co_names):
            return


def _own_functions(value: Any) -> Iterator[types.FunctionType]:
    if isinstance(value, types.FunctionType):
        yield value
    elif isinstance(value, types.MethodType):
        yield from _own_functions(value.__func__)
    elif isinstance(value, functools.partial):
        yield from _own_functions(value.func)


def _note(code: types.CodeType, found: SampleCode) -> set[str]:
    """Add the names of `code` and of the functions inside it; returns them."""
    names = {*code.co_names, *code.co_freevars}
    found.assigned |= {step.argval for step in dis.get_instructions(code) if step.opname in _STORES}
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            names |= _note(inner, found)
    found.names |= names
    return names
