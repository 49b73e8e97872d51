"""Whether a frame is working on torch's objects: plain ``x @ w`` or ``x.mul_(2)`` leaves no frame of torch.

The expression that is being executed is found in the source by its position, and only the names that it
begins with are looked up: no code of the user is called.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import sys
from itertools import islice
from types import CodeType, FrameType, ModuleType
from typing import Any

import torch

_LOOKS_AT_ITSELF = frozenset({"locals", "vars", "dir", "eval", "exec"})
_TO_HOST = frozenset({"item", "tolist", "numpy"})
"""Methods of a tensor that compute nothing: they hand its values to the Python of the training loop."""
_REFERENCES = 3
"""What ``sys.getrefcount`` says of a dict that only a frame and one variable hold."""


def works_on_torch(frame: FrameType) -> bool:
    """Whether the innermost expression is about tensors, modules or functions of torch."""
    names = _root_names(frame.f_code, frame.f_lasti)
    return bool(names) and any(_is_torch(value) for value in values_in(frame, names))


def values_in(frame: FrameType, names: tuple[str, ...]) -> list[Any]:
    """The values of some names in a frame; none where the frame must not be looked at, None for unknown ones.

    Up to Python 3.12, looking at a function's variables copies them into a dict that stays with the frame. It
    would keep the user's tensors alive, so it is emptied again. A function that uses that dict itself would
    see it change, so nothing is looked up there.
    """
    copied = sys.version_info < (3, 13) and bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED)
    if copied and not _LOOKS_AT_ITSELF.isdisjoint(frame.f_code.co_names):
        return []
    variables = frame.f_locals
    values = [variables.get(name, frame.f_globals.get(name)) for name in names]
    if copied and sys.getrefcount(variables) <= _REFERENCES:
        variables.clear()
    return values


def _is_torch(value: Any) -> bool:
    if isinstance(value, (torch.Tensor, torch.nn.Module, torch.optim.Optimizer)):
        return True
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0] == "torch"
    home = getattr(value, "__module__", None) if callable(value) else None
    return isinstance(home, str) and home.partition(".")[0] == "torch"


@functools.lru_cache(maxsize=512)
def _root_names(code: CodeType, instruction: int) -> tuple[str, ...]:
    """Names that the expression at an instruction begins with; empty where the source does not tell."""
    position = next(islice(code.co_positions(), instruction // 2, None), None)
    if position is None or None in position:
        return ()
    line, end_line, column, end_column = (value or 0 for value in position)
    source = [linecache.getline(code.co_filename, number).encode() for number in range(line, end_line + 1)]
    if not source or not source[0]:
        return ()
    source[-1] = source[-1][:end_column]
    source[0] = source[0][column:]
    try:
        tree = ast.parse(b"(" + b"".join(source) + b")", mode="eval")
    except (SyntaxError, ValueError):
        return ()
    return tuple(_roots(tree.body))


def _roots(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Call):
        to_host = isinstance(node.func, ast.Attribute) and node.func.attr in _TO_HOST
        return [] if to_host else _roots(node.func)
    if isinstance(node, (ast.Attribute, ast.Subscript, ast.Await)):
        return _roots(node.value)
    if isinstance(node, ast.BinOp):
        return [*_roots(node.left), *_roots(node.right)]
    if isinstance(node, ast.UnaryOp):
        return _roots(node.operand)
    return []
