"""Random numbers that repeat themselves in the workers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unstarve.checks.source.project import DatasetClass, LoaderCall, Project
from unstarve.checks.source.syntax import (
    Function,
    Source,
    assigned_attributes,
    names_in,
    uses_attribute,
    written,
)
from unstarve.model.checks import finding
from unstarve.model.finding import Finding

_GENERATOR = re.compile(r"numpy\.random\.(default_rng|RandomState|Generator)|random\.Random|torch\.Generator")
_SEED = re.compile(
    r"numpy\.random\.seed|random\.seed|torch\.(cuda\.)?manual_seed(_all)?|(\w+\.)*seed_everything"
)
_DIFFERS = {
    "initial_seed",
    "get_worker_info",
    "worker_info",
    "urandom",
    "getpid",
    "time",
    "time_ns",
    "seed_seq",
}
"""A seed that is made from one of these is another one in every worker."""


def generator_before_fork(project: Project) -> Iterator[Finding]:
    """A generator made in ``__init__`` and used where samples are fetched."""
    for dataset in project.datasets:
        loaders = [
            one for one in project.loaders_of(dataset) if one.has_workers() and _leaves_seeds_alone(one)
        ]
        if not loaders or dataset.init is None or _knows_workers(dataset):
            continue
        for name, value in assigned_attributes(dataset.init):
            made = next(dataset.source.calls(_GENERATOR, value), None)
            drawn = any(uses_attribute(method, name) for method in dataset.fetching())
            if made is None or not drawn or _made_again(dataset, name):
                continue
            yield finding(
                "generator-before-fork",
                f"{dataset.name}.{name} is made once, in __init__: each of the {loaders[0].crew} of "
                f"{loaders[0].name} draws the same numbers from its own copy.",
                f"self.{name} = None  # in {dataset.name}.__init__\n"
                f"if self.{name} is None:  # where samples are fetched\n"
                f"    self.{name} = {_from_worker_seed(dataset.source, made)}",
                file=dataset.source.path,
                line=made.lineno,
            )


def worker_seeds_equal(project: Project) -> Iterator[Finding]:
    """A ``worker_init_fn`` that seeds every worker with the same number."""
    for loader in project.loaders:
        given = loader.argument("worker_init_fn")
        function = _function_named(loader.source, given)
        if function is None or not loader.has_workers():
            continue
        parameters = {one.arg for one in function.args.args}
        known = parameters | _DIFFERS | _derived(function, parameters | _DIFFERS)
        body = function.body if isinstance(function.body, list) else [function.body]
        for statement in body:
            for call in loader.source.calls(_SEED, statement):
                told = {name for one in (*call.args, *call.keywords) for name in names_in(one)}
                if not (call.args or call.keywords) or told & known:
                    continue
                seed = written(call.args[0]) if call.args else "a constant"
                yield finding(
                    "worker-seeds-equal",
                    f"worker_init_fn of {loader.name} seeds all of its {loader.crew} with {seed}.",
                    f"{written(call.func)}(torch.initial_seed() % 2**32)  # differs by worker and epoch",
                    file=loader.source.path,
                    line=call.lineno,
                )


def _leaves_seeds_alone(loader: LoaderCall) -> bool:
    return loader.is_complete and loader.argument("worker_init_fn") is None


def _knows_workers(dataset: DatasetClass) -> bool:
    return bool(names_in(dataset.node) & {"get_worker_info", "worker_info"})


def _made_again(dataset: DatasetClass, name: str) -> bool:
    return any(name == other for method in dataset.fetching() for other, _ in assigned_attributes(method))


def _from_worker_seed(source: Source, made: ast.Call) -> str:
    called = written(made.func)
    if source.full_name(made.func) == "torch.Generator":
        return f"{called}().manual_seed(torch.initial_seed())"
    if source.full_name(made.func) == "random.Random":
        return f"{called}(torch.initial_seed())"
    return f"{called}(torch.initial_seed() % 2**32)"


def _function_named(source: Source, given: ast.expr | None) -> Function | ast.Lambda | None:
    if isinstance(given, ast.Lambda):
        return given
    if not isinstance(given, ast.Name):
        return None
    found = [
        node
        for node in source.nodes
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == given.id
    ]
    return found[0] if len(found) == 1 else None


def _derived(function: Function | ast.Lambda, known: set[str]) -> set[str]:
    """Local names that are computed from `known` ones."""
    derived: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and names_in(node.value) & (known | derived):
            derived |= {name for target in node.targets for name in names_in(target)}
    return derived
