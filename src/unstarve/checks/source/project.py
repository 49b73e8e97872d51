"""The files that are checked together: their dataset classes, and the loaders that iterate them.

A class is known by its name alone. Two classes of one name are told apart by the file where a loader uses one
of them; where that does not decide, nothing is known.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from unstarve.checks.source.syntax import Function, Source, argument, methods, takes_unknown

_DATASET = re.compile(r"(torch\.utils\.data\.)?(dataset\.)?Dataset|torchvision\.datasets(\.\w+)*")
_ITERABLE = re.compile(r"(torch\.utils\.data\.)?(dataset\.)?IterableDataset")
_LOADER = re.compile(r"torch\.utils\.data\.(dataloader\.)?DataLoader")
_FETCHES = ("__getitem__", "__getitems__", "__iter__", "__next__")


@dataclass(frozen=True, slots=True)
class DatasetClass:
    """A class of the user's that derives from torch's datasets."""

    source: Source
    node: ast.ClassDef
    is_iterable: bool

    @property
    def name(self) -> str:
        """Its name."""
        return self.node.name

    @property
    def init(self) -> Function | None:
        """Its ``__init__``."""
        return methods(self.node).get("__init__")

    def fetching(self) -> list[Function]:
        """The methods that run in a worker: those that fetch, and all that these call on ``self``."""
        own = methods(self.node)
        pending = [own[name] for name in _FETCHES if name in own]
        found: dict[str, Function] = {one.name: one for one in pending}
        while pending:
            for node in ast.walk(pending.pop()):
                called = own.get(node.attr) if isinstance(node, ast.Attribute) else None
                if called is not None and called.name not in found:
                    found[called.name] = called
                    pending.append(called)
        return list(found.values())


@dataclass(frozen=True, slots=True)
class LoaderCall:
    """A call of ``DataLoader(…)``."""

    source: Source
    call: ast.Call
    name: str
    """The variable it is assigned to; ``loader`` where that is not a plain name."""
    within: ast.Module | Function
    """The function that contains the call, or the module."""
    dataset: DatasetClass | None
    dataset_name: str
    workers: ast.expr | None
    """``num_workers`` as written."""

    def argument(self, name: str) -> ast.expr | None:
        """The value of a keyword argument."""
        return argument(self.call, name)

    def has_workers(self, least: int = 1) -> bool:
        """Whether the source asks for at least so many workers, by a number or by a name."""
        if isinstance(self.workers, ast.Constant):
            return type(self.workers.value) is int and self.workers.value >= least
        return self.workers is not None

    @property
    def crew(self) -> str:
        """The workers in words: ``4 workers``, ``args.workers workers``."""
        if not isinstance(self.workers, (ast.Constant, ast.Name, ast.Attribute)):
            return "workers"
        return f"{ast.unparse(self.workers)} workers"

    @property
    def is_complete(self) -> bool:
        """Whether all arguments are written in the call, so that a missing one is not given."""
        return not takes_unknown(self.call)


@dataclass(frozen=True, slots=True)
class Project:
    """All files of one check."""

    sources: tuple[Source, ...]
    datasets: tuple[DatasetClass, ...]
    loaders: tuple[LoaderCall, ...]
    loaders_by_class: dict[ast.ClassDef, list[LoaderCall]]

    def loaders_of(self, dataset: DatasetClass) -> list[LoaderCall]:
        """The loaders that iterate a dataset of this class."""
        return self.loaders_by_class.get(dataset.node, [])


def project_of(sources: Sequence[Source]) -> Project:
    """Find the datasets and loaders of these files."""
    datasets = tuple(one for source in sources for one in _datasets(source))
    by_name: dict[str, list[DatasetClass]] = {}
    for dataset in datasets:
        by_name.setdefault(dataset.name, []).append(dataset)
    loaders = tuple(one for source in sources for one in _loaders(source, by_name))
    by_class: dict[ast.ClassDef, list[LoaderCall]] = {}
    for loader in loaders:
        if loader.dataset is not None:
            by_class.setdefault(loader.dataset.node, []).append(loader)
    return Project(tuple(sources), datasets, loaders, by_class)


def scope_of(source: Source, inner: ast.expr) -> ast.Module | Function:
    """The innermost function around an expression, or the module."""
    around = [
        node
        for node in source.nodes
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.lineno <= inner.lineno <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno, default=source.tree)


def own_statements(scope: ast.Module | Function) -> Iterator[ast.AST]:
    """All nodes of a function or module, without those of the functions and classes inside it."""
    pending: list[ast.AST] = list(scope.body)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            pending.extend(ast.iter_child_nodes(node))


def _datasets(source: Source) -> Iterator[DatasetClass]:
    classes = [node for node in source.nodes if isinstance(node, ast.ClassDef)]
    known: dict[str, bool] = {}  # whether iterable, by name
    for node in classes:  # a base class stands above the classes that derive from it
        bases = [
            source.full_name(base.value if isinstance(base, ast.Subscript) else base) for base in node.bases
        ]
        iterable = any(_ITERABLE.fullmatch(base) or known.get(base) is True for base in bases)
        if iterable or any(_DATASET.fullmatch(base) or base in known for base in bases):
            known[node.name] = iterable
            yield DatasetClass(source, node, iterable)


def _loaders(source: Source, datasets: Mapping[str, Sequence[DatasetClass]]) -> Iterator[LoaderCall]:
    for call in source.calls(_LOADER):
        scope = scope_of(source, call)
        made: dict[str, ast.expr] = {}
        name = "loader"
        for node in own_statements(scope):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target = node.targets[0]
                if isinstance(target, ast.Name):
                    made[target.id] = node.value
                if node.value is call and isinstance(target, (ast.Name, ast.Attribute)):
                    name = ast.unparse(target)
        given = argument(call, "dataset", 0)
        yield LoaderCall(
            source,
            call,
            name,
            scope,
            _class_of(source, given, made, datasets),
            ast.unparse(given) if isinstance(given, (ast.Name, ast.Attribute)) else "dataset",
            argument(call, "num_workers", 5),
        )


def _class_of(
    source: Source,
    given: ast.expr | None,
    made: dict[str, ast.expr],
    datasets: Mapping[str, Sequence[DatasetClass]],
) -> DatasetClass | None:
    """The class of the dataset that a loader is given, followed through one variable."""
    if isinstance(given, ast.Name):
        given = made.get(given.id)
    if not isinstance(given, ast.Call):
        return None
    name = source.full_name(given.func).rpartition(".")[2]
    candidates = datasets.get(name, ())
    here = [one for one in candidates if one.source is source]
    return here[0] if len(here) == 1 else candidates[0] if len(candidates) == 1 else None
