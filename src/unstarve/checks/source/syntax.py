"""One file of source, parsed: its tree, what its imported names mean, and where they are used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed file."""

    path: str
    """As it is shown to the user."""
    text: bytes = field(repr=False)
    tree: ast.Module
    nodes: tuple[ast.AST, ...] = field(repr=False)
    """All nodes of the tree: walking it takes longer than parsing it."""
    names: dict[str, str]
    """What each imported name stands for: ``{"np": "numpy", "Subset": "torch.utils.data.Subset"}``."""

    @classmethod
    def parse(cls, text: bytes, path: Path | str) -> Source | None:
        """The file; None when it is not valid Python of this version."""
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        nodes = tuple(ast.walk(tree))
        return cls(str(path), text, tree, nodes, _imported_names(nodes))

    def mentions(self, *words: str) -> bool:
        """Whether one of these words occurs anywhere in the text."""
        return any(word.encode() in self.text for word in words)

    def full_name(self, node: ast.AST | None) -> str:
        """What a dotted expression stands for: ``np.random.seed`` is "numpy.random.seed"; "" for others."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        parts.append(self.names.get(node.id, node.id))
        return ".".join(reversed(parts))

    def calls(self, pattern: re.Pattern[str], root: ast.AST | None = None) -> Iterator[ast.Call]:
        """Calls whose full name matches `pattern` as a whole, in the file or below `root`."""
        for node in self.nodes if root is None else ast.walk(root):
            if isinstance(node, ast.Call) and pattern.fullmatch(self.full_name(node.func)):
                yield node


def _imported_names(nodes: Iterable[ast.AST]) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for one in node.names:
                names[one.asname or one.name.partition(".")[0]] = (
                    one.name if one.asname else one.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update({one.asname or one.name: f"{node.module}.{one.name}" for one in node.names})
    return names


def argument(call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    """An argument of a call by its keyword, or by its position."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if position is None or position >= len(call.args) or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    return call.args[position]


def takes_unknown(call: ast.Call) -> bool:
    """Whether a call has ``*args`` or ``**kwargs``: what is not written may still be given."""
    return any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args)


def methods(cls: ast.ClassDef) -> dict[str, Function]:
    """The methods that a class defines itself."""
    return {one.name: one for one in cls.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))}


def own_attribute(node: ast.AST) -> str | None:
    """``x`` of ``self.x``; None for anything else."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return None


def uses_attribute(root: ast.AST, name: str) -> bool:
    """Whether ``self.name`` occurs below `root`."""
    return any(own_attribute(node) == name for node in ast.walk(root))


def assigned_attributes(function: Function) -> Iterator[tuple[str, ast.expr]]:
    """``self.x = value`` in a method: name and value."""
    for node in ast.walk(function):
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        value = getattr(node, "value", None)
        for target in targets:
            name = own_attribute(target)
            if name is not None and value is not None:
                yield name, value


def names_in(root: ast.AST) -> set[str]:
    """All names and attribute names below `root`."""
    found: set[str] = set()
    for node in ast.walk(root):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
    return found


def written(node: ast.AST) -> str:
    """An expression as source, on one line."""
    return " ".join(ast.unparse(node).split())
