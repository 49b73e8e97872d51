"""Workers that draw the same random numbers.

torch seeds `random`, `torch` and numpy's global generator differently in each worker and each epoch. A
generator of the user's own is copied into every worker as it is, and a `worker_init_fn` can seed all alike.
"""

from __future__ import annotations

import ast
import functools
import numbers
import random
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from unstarve import words
from unstarve.checks.objects.attributes import Place, closed_over, stored
from unstarve.checks.objects.loader_parts import (
    held_by_samples,
    init_may_change,
    is_forked,
    is_used,
    may_differ_in_workers,
    report,
)
from unstarve.checks.objects.sample_code import WORKER_NAMES, sample_code, syntax_tree
from unstarve.checks.objects.subject import Subject
from unstarve.model.finding import Finding

_KINDS = {
    np.random.Generator: ("np.random.Generator", " = np.random.default_rng(info.seed)"),
    np.random.RandomState: ("np.random.RandomState", ".seed(info.seed % 2**32)"),
    random.Random: ("random.Random", ".seed(info.seed)"),
    torch.Generator: ("torch.Generator", ".manual_seed(info.seed)"),
}
"""How each is called, and how it is given another state."""
_RESEEDING = frozenset({"seed", "manual_seed", "set_state", "setstate", "state", "spawn", "initial_seed"})
_KNOWN_TO_RESEED = ("albumentations", "albucore", "torch.utils.data")
"""Their generators are seeded anew in each worker."""

_HIDING = (types.FunctionType, functools.partial)
"""What they hold has no name that can be assigned to."""

_SEEDERS = frozenset({"seed", "manual_seed", "seed_everything", "set_seed"})


def generator_before_fork(subject: Subject) -> Iterator[Finding]:
    """Generators that samples draw from and that every worker receives in the same state."""
    loader = subject.loader
    if loader.num_workers < 2:
        return
    for place in held_by_samples(subject):
        if _is_own_generator(place.value) and _is_copied(place, subject):
            owner = place.value if place.owner is None else place.owner
            yield _shared(subject, place.path, place.value, owner)
    if is_forked(loader):
        code = sample_code(loader.dataset)
        for name, value in code.globals.items():
            split = code.names & (_RESEEDING | WORKER_NAMES) or init_may_change(loader, name)
            if _is_own_generator(value) and not split and name not in code.assigned:
                yield _shared(subject, name, value, None)


def _is_own_generator(value: Any) -> bool:
    """Not the global ones, which torch seeds in each worker, and not the system's entropy."""
    return (
        isinstance(value, tuple(_KINDS))
        and not isinstance(value, random.SystemRandom)
        and value is not np.random.mtrand._rand  # what check_random_state(None) gives
        and value is not random._inst  # behind random.random()
        and value is not torch.default_generator
    )


def _is_copied(place: Place, subject: Subject) -> bool:
    """Whether samples use it as it is: not where code that makes samples seeds or replaces it.

    A stream may need the same generator in all workers, to shuffle its shards alike before it splits them;
    its code then asks for the worker.
    """
    owner = place.owner if place.owner is not None else place.value
    if type(owner).__module__.startswith(_KNOWN_TO_RESEED) or may_differ_in_workers(place, subject):
        return False
    outer = sample_code(subject.loader.dataset)
    for code in (sample_code(owner, called=outer.names), outer):
        mentioned = code.names | code.assigned
        if place.attribute in mentioned and (code.names & _RESEEDING or place.attribute in code.assigned):
            return False
    return is_used(place, subject)


def _shared(subject: Subject, path: str, value: Any, owner: Any) -> Finding:
    """`owner` is None for a module-level generator."""
    count = subject.loader.num_workers
    name, fresh = next(how for kind, how in _KINDS.items() if isinstance(value, kind))
    line = ""
    if owner is None:
        line = f"{_imported(subject, path, value)}{fresh}"
    elif path.startswith(f"{subject.dataset_name}.") and not isinstance(owner, _HIDING):
        line = f"info.dataset{path.removeprefix(subject.dataset_name)}{fresh}"
    fix = (
        "def seed_worker(worker_id):\n"
        "    info = torch.utils.data.get_worker_info()\n"
        f"    {line}\n\n"
        f"{subject.name} = DataLoader(..., worker_init_fn=seed_worker)"
        if line
        else f"Make {path} inside the worker, and seed it with torch.initial_seed()."
    )
    message = f"{path} is one {name}, and each of {words.workers(count)} starts with a copy of its state."
    return report(subject, "generator-before-fork", message, fix, harm=1 - 1 / count)


def _imported(subject: Subject, name: str, value: Any) -> str:
    """How a function of the main script assigns to a module-level name."""
    functions = sample_code(subject.loader.dataset).functions
    homes = [one.__module__ for one in functions if one.__globals__.get(name) is value]
    module = homes[0] if homes else "__main__"
    if module == "__main__":
        return f"global {name}\n    {name}"
    return f"import {module}\n    {module}.{name}"


def worker_seeds_equal(subject: Subject) -> Iterator[Finding]:
    """A `worker_init_fn` that seeds every worker with the same number."""
    loader = subject.loader
    if loader.num_workers < 2:
        return
    init = _init_function(loader)
    tree = None if init is None else syntax_tree(init)
    if init is None or tree is None:
        return
    for call in _last_seeds(tree):
        if _is_same_everywhere(call.args[0], tree, init):
            written = ast.unparse(call)
            yield report(
                subject,
                "worker-seeds-equal",
                f"{_called(init)} runs {written} in each of {words.workers(loader.num_workers)}.",
                f"{ast.unparse(call.func)}(torch.initial_seed() % 2**32)",
                harm=1 - 1 / loader.num_workers,
            )


def _init_function(loader: DataLoader[Any]) -> types.FunctionType | None:
    init: Any = loader.worker_init_fn
    return init if isinstance(init, types.FunctionType) else None


def _called(init: types.FunctionType) -> str:
    return "worker_init_fn" if init.__name__ == "<lambda>" else f"{init.__name__}()"


def _last_seeds(tree: ast.FunctionDef | ast.Lambda) -> Iterator[ast.Call]:
    """Calls such as ``np.random.seed(0)`` that always run; of two that seed the same stream, the second."""
    statements = tree.body if isinstance(tree, ast.FunctionDef) else [ast.Expr(tree.body)]
    last: dict[str, ast.Call] = {}
    for statement in statements:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and len(call.args) == 1 and not call.keywords:
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            if name in _SEEDERS:
                last[ast.unparse(call.func)] = call
    yield from last.values()


def _is_same_everywhere(
    value: ast.expr, tree: ast.FunctionDef | ast.Lambda, init: types.FunctionType
) -> bool:
    """Whether an expression is made only of numbers that all workers have alike."""
    if isinstance(value, ast.BinOp):
        return all(_is_same_everywhere(side, tree, init) for side in (value.left, value.right))
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "int" and len(value.args) == 1:
        return _is_same_everywhere(value.args[0], tree, init)
    return isinstance(_constant(value, tree, init), numbers.Number)


def _constant(value: ast.expr, tree: ast.FunctionDef | ast.Lambda, init: types.FunctionType) -> Any:
    """What ``42``, ``SEED`` or ``args.seed`` stands for; None where the function itself decides that."""
    if isinstance(value, ast.Constant):
        return value.value
    if isinstance(value, ast.Attribute):
        return stored(_constant(value.value, tree, init)).get(value.attr)
    if not isinstance(value, ast.Name):
        return None
    local = {argument.arg for argument in ast.walk(tree) if isinstance(argument, ast.arg)}
    local |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    outer = {**init.__globals__, **closed_over(init)}
    return None if value.id in local else outer.get(value.id)
