"""The calls in a Python source, where they are written, and which of them create loaders."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, CodeSpan, MetadataWrapper

from unstarve.errors import NotPatchableError


@dataclass(frozen=True, slots=True)
class SourceRange:
    """A range of a source, in bytes of its UTF-8."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a call; `value` excludes parentheses around it."""

    keyword: str | None
    star: str
    """``""``, ``*`` or ``**``."""
    whole: SourceRange
    value: SourceRange
    entries: dict[str, SourceRange] | None = None
    """For ``**{…}``: where the value of each key is written."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call; `whole` includes its closing parenthesis."""

    function: str
    """The called expression, as written."""
    whole: SourceRange
    arguments: tuple[Argument, ...]
    direct: bool
    """Its positional arguments are those of ``DataLoader``."""


class Calls(cst.CSTVisitor):
    """Collects the calls of a module and its names for loader classes."""

    def __init__(self, module: cst.Module, spans: Mapping[cst.CSTNode, CodeSpan]) -> None:
        super().__init__()
        self._module = module
        self._spans = spans
        self.found: list[tuple[cst.Call, SourceRange]] = []
        self.classes: set[str] = {"DataLoader"}
        self.partials: set[str] = set()

    def visit_Call(self, node: cst.Call) -> None:
        self.found.append((node, self.written(node)))

    def visit_ImportAlias(self, node: cst.ImportAlias) -> None:
        name = _last(node.name)
        if node.asname is not None and name in self.classes and isinstance(node.asname.name, cst.Name):
            self.classes.add(node.asname.name.value)

    def visit_Assign(self, node: cst.Assign) -> None:
        names = {target.target.value for target in node.targets if isinstance(target.target, cst.Name)}
        value = node.value
        if _last(value) in self.classes:
            self.classes |= names
        elif isinstance(value, cst.Call) and _last(value.func) == "partial":
            of_loader = bool(value.args) and _last(value.args[0].value) in self.classes
            self.partials |= names if of_loader else set()

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        if any(_last(base.value) in self.classes for base in node.bases):
            self.classes.add(node.name.value)

    def written(self, node: cst.CSTNode) -> SourceRange:
        """Where a node is written."""
        span = self._spans[node]
        return SourceRange(span.start, span.start + span.length)

    def call(self, node: cst.Call, kind: str) -> Call:
        """The call that created a loader of class `kind`.

        Raises `NotPatchableError` when its arguments may not be the loader's: ``list(map(DataLoader, …))``.
        """
        function = self._module.code_for_node(node.func)
        last = _last(node.func)
        direct = last in self.classes or last == kind
        if not direct and last not in self.partials and last != "__init__":
            raise NotPatchableError(f"the loader is created by a call of {function}, not of DataLoader")
        arguments = tuple(self._argument(argument) for argument in node.args)
        return Call(function, self.written(node), arguments, direct)

    def _argument(self, node: cst.Arg) -> Argument:
        keyword = None if node.keyword is None else node.keyword.value
        entries = None
        if node.star == "**" and isinstance(node.value, cst.Dict):
            entries = self._entries(node.value.elements)
        return Argument(keyword, node.star, self.written(node), self.written(node.value), entries)

    def _entries(self, elements: Sequence[cst.BaseDictElement]) -> dict[str, SourceRange] | None:
        """None when a key is not a literal."""
        entries = {}
        for element in elements:
            if not isinstance(element, cst.DictElement) or not isinstance(element.key, cst.SimpleString):
                return None
            entries[str(ast.literal_eval(element.key.value))] = self.written(element.value)
        return entries


def read_calls(source: str) -> Calls:
    """The calls in a source. Raises `NotPatchableError` when it is not valid Python."""
    try:
        wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
    except cst.ParserSyntaxError as error:
        raise NotPatchableError(f"it is not valid Python: {error.message}") from error
    calls = Calls(wrapper.module, wrapper.resolve(ByteSpanPositionProvider))
    wrapper.module.visit(calls)
    return calls


def line_offset(text: bytes, line: int) -> int:
    """Byte offset of a line, as Python counts lines.

    `bytes.splitlines` agrees; `str.splitlines` would also split at form feeds and Unicode separators.
    """
    return sum(len(one) for one in text.splitlines(keepends=True)[: line - 1])


def _last(node: cst.CSTNode) -> str | None:
    """``DataLoader`` of ``data.DataLoader[int]``."""
    if isinstance(node, cst.Subscript):
        return _last(node.value)
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else None
