"""The files of a dataset: where they are, and whether a sample is what one of them holds.

Nothing is opened except the source of the dataset's class. Facts, all missing where they are not known:

``root``
    The folder that holds all files.
``suffix``, ``file_bytes``
    Of its files: ``.jpg``; mean size of a few.
``files``
    Attribute with one path per sample: ``paths``.
``loads``
    What ``__getitem__`` does with such a path, and nothing else: ``torch.load``, ``numpy.load`` or
    ``load_file`` (of safetensors).
``labels``
    Attribute with one label per sample, if samples are (what the file holds, label).
``packs_as``
    The folder or pattern that `unstarve pack` needs to pack the same samples in the same order.
``opened``
    What ``__getitem__`` passes to ``Image.open``: ``self.paths[index]``.
"""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

_ROOTS = ("root", "root_dir", "data_dir", "data_root", "folder", "image_dir", "img_dir", "directory")
_SIZED = 3
"""Files whose size is looked up."""
_SOME = 64
"""Files whose common folder is looked for."""
_MOST_COMPARED = 50_000
"""Longer lists are not compared with their folder: that would take too long."""
_LOADS = {
    "torch.load": "torch.load",
    "np.load": "numpy.load",
    "numpy.load": "numpy.load",
    "load_file": "load_file",
    "safetensors.torch.load_file": "load_file",
}
_SUFFIXES = {"torch.load": (".pt", ".pth"), "numpy.load": (".npy",), "load_file": (".safetensors",)}
_PASSED_THROUGH = frozenset({"torch.from_numpy", "torch.as_tensor", "str", "os.fspath"})
_HARMLESS = frozenset({"map_location", "weights_only", "mmap_mode", "allow_pickle"})


def file_facts(dataset: Any, own: Any) -> dict[str, Any]:
    """The facts about a dataset's files; `own` is the dataset itself, without the subsets around it."""
    attribute, listed = _file_list(own)
    some = [_path_of(one) for one in [*listed[:: max(len(listed) // _SOME, 1)], *listed[-1:]]]
    facts = _described(own, some)
    opened = _image_argument(own)
    if opened is not None:
        facts["opened"] = opened
    returned = _returned(own) if own is dataset and attribute is not None else None
    loads = None if returned is None or attribute is None else _file_content(returned, attribute)
    if loads is not None and facts.get("suffix") in _SUFFIXES[loads[0]]:
        facts |= {"files": attribute, "loads": loads[0]} | ({"labels": loads[1]} if loads[1] else {})
        pattern = None if loads[1] else _packs_as(listed, facts["suffix"])
        if pattern is not None:
            facts["packs_as"] = pattern
    return facts


def _file_list(dataset: Any) -> tuple[str | None, Sequence[Any]]:
    """The attribute that holds one path per sample, and its value, which may be long.

    The attribute is None if the paths are not alone: (path, label), as in torchvision's folders.
    """
    for name, value in getattr(dataset, "__dict__", {}).items():
        listed = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
        if not listed or not value or len(value) != len(dataset):
            continue
        path = _path_of(value[0])
        if path and Path(path).suffix:
            return (None if isinstance(value[0], tuple) else name), value
    return None, ()


def _path_of(entry: Any) -> str:
    """The path in an entry of a list; empty if there is none."""
    first = entry[0] if isinstance(entry, tuple) and entry else entry
    return os.fspath(first) if isinstance(first, (str, Path)) else ""


def _described(dataset: Any, some: Sequence[str]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    given = (getattr(dataset, "__dict__", {}).get(name) for name in _ROOTS)
    roots = [os.fspath(one) for one in given if isinstance(one, (str, Path))]
    if some:
        facts["suffix"] = Path(some[0]).suffix.lower()
        with suppress(ValueError):  # absolute and relative paths
            roots.append(os.path.commonpath([os.path.dirname(path) for path in some]))  # noqa: PTH120 - of texts
        with suppress(OSError):  # relative to a folder that the dataset adds
            few = some[:: max(len(some) // _SIZED, 1)]
            facts["file_bytes"] = sum(Path(path).stat().st_size for path in few) // len(few)
    root = next((one for one in roots if one and Path(one).is_dir()), None)
    return facts if root is None else {**facts, "root": root}


def _returned(dataset: Any) -> ast.expr | None:
    """What ``__getitem__`` returns, with its variables replaced by what was assigned to them.

    None unless it only assigns and returns.
    """
    function = getitem(dataset)
    if function is None or len(function.args.args) != 2:
        return None
    values: dict[str, ast.expr] = {function.args.args[1].arg: ast.Name("index")}
    for statement in function.body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue  # the docstring
        if isinstance(statement, ast.Return) and statement.value is not None:
            return _filled(statement.value, values)
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            return None
        target = statement.targets[0]
        if not isinstance(target, ast.Name):
            return None
        values[target.id] = _filled(statement.value, values)
    return None


def getitem(dataset: Any) -> ast.FunctionDef | None:
    """The source of ``__getitem__``; None without one of its own, and beside ``__getitems__``."""
    found = vars(type(dataset)).get("__getitem__")
    if found is None or hasattr(type(dataset), "__getitems__"):
        return None
    try:
        parsed = ast.parse(textwrap.dedent(inspect.getsource(found))).body[0]
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    return parsed if isinstance(parsed, ast.FunctionDef) and not parsed.decorator_list else None


def _filled(expression: ast.expr, values: dict[str, ast.expr]) -> ast.expr:
    class Fill(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return values.get(node.id, node)

    filled: ast.expr = Fill().visit(ast.parse(ast.unparse(expression), mode="eval").body)
    return filled


def _file_content(returned: ast.expr, attribute: str) -> tuple[str, str | None] | None:
    """The function that loads a file and the attribute of the labels, if a sample is nothing else."""
    label = None
    if isinstance(returned, ast.Tuple) and len(returned.elts) == 2:
        label = _indexed(returned.elts[1])
        if label is None:
            return None
        returned = returned.elts[0]
    returned = _unwrapped(returned)
    if not isinstance(returned, ast.Call) or len(returned.args) != 1:
        return None
    function = _LOADS.get(ast.unparse(returned.func))
    if function is None or any(keyword.arg not in _HARMLESS for keyword in returned.keywords):
        return None
    return (function, label) if _indexed(_unwrapped(returned.args[0])) == attribute else None


def _unwrapped(value: ast.expr) -> ast.expr:
    while isinstance(value, ast.Call) and len(value.args) == 1 and not value.keywords:
        if ast.unparse(value.func) not in _PASSED_THROUGH:
            break
        value = value.args[0]
    return value


def _indexed(value: ast.expr) -> str | None:
    """``paths`` for ``self.paths[index]``."""
    text = ast.unparse(value)
    name = text.removeprefix("self.").removesuffix("[index]")
    return name if text == f"self.{name}[index]" and name.isidentifier() else None


def _image_argument(dataset: Any) -> str | None:
    function = getitem(dataset)
    for node in ast.walk(function) if function is not None else ():
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Image.open", "PIL.Image.open"):
            return ast.unparse(node.args[0]) if node.args else None
    return None


def _packs_as(listed: Sequence[Any], suffix: str) -> str | None:
    """The pattern whose files are exactly these, in the order of their names."""
    if len(listed) > _MOST_COMPARED:
        return None
    paths = [os.fspath(one) for one in listed]
    folder = os.path.dirname(paths[0])  # noqa: PTH120 - of texts, many
    names = [os.path.basename(path) for path in paths]  # noqa: PTH119 - as above
    if any(os.path.dirname(path) != folder for path in paths):  # noqa: PTH120 - as above
        return None
    if any(one >= other for one, other in pairwise(names)):
        return None
    try:
        with os.scandir(folder or ".") as entries:
            there = [e.name for e in entries if e.name.endswith(suffix) and not e.name.startswith(".")]
    except OSError:
        return None
    return f"{folder or '.'}/*{suffix}" if sorted(there) == names else None
