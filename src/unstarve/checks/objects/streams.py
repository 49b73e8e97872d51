"""Streams (`IterableDataset`) that workers do not divide among themselves, or not evenly."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from unstarve import words
from unstarve.checks.objects.attributes import stored, walk
from unstarve.checks.objects.batch_values import arrays, same_values, samples_differ
from unstarve.checks.objects.loader_parts import init_may_change, is_stream, report, set_to
from unstarve.checks.objects.sample_code import WORKER_NAMES, own_attribute, sample_code, syntax_tree
from unstarve.checks.objects.subject import Subject
from unstarve.collect.storage_layout import shard_count
from unstarve.model.finding import Finding

_SPLITTING = WORKER_NAMES | {"num_workers", "split_by_worker", "shard", "rank", "get_rank", "world_size"}
_RANDOM = ("rand", "rng", "gen", "choice", "shuffle", "sampl", "perm", "normal", "uniform", "integers")
"""How names of random functions begin: streams of random samples need not be split."""

_WHOLE = frozenset({"iter", "enumerate", "zip", "range", "len", "sorted", "reversed", "open"})
_DATA = (list, tuple, dict, set, str, int, range, os.PathLike, np.ndarray, torch.Tensor)


def iterable_not_split(subject: Subject) -> Iterator[Finding]:
    """A stream that every worker delivers in full, by its first batches or by its source."""
    loader = subject.loader
    count = loader.num_workers
    if not is_stream(loader) or count < 2:
        return
    if len(subject.batches) >= 2:
        if not _first_batches_are_equal(subject):
            return
        copies = min(count, len(subject.batches))
        seen = f"the first {copies} batches, each from another worker, hold the same samples"
    elif (data := _iterated_in_full(subject)) is not None:
        seen = f"__iter__ goes through all of {data} in each of {words.workers(count)}"
    else:
        return
    yield report(
        subject,
        "iterable-not-split",
        f"{subject.dataset_name} does not split its data by worker: {seen}.",
        _split_fix(subject),
        harm=1 - 1 / count,
    )


def _split_fix(subject: Subject) -> str:
    return (
        f"# in {type(subject.loader.dataset).__name__}\n"
        "def __iter__(self):\n"
        "    info = torch.utils.data.get_worker_info()\n"
        "    worker, workers = (info.id, info.num_workers) if info else (0, 1)\n"
        "    yield from itertools.islice(self.all_samples(), worker, None, workers)\n"
        "# all_samples() is today's __iter__"
    )


def _first_batches_are_equal(subject: Subject) -> bool:
    """Whether each worker's first batch is the same while the samples differ."""
    count, batches = subject.loader.num_workers, subject.batches
    if not getattr(subject.loader, "in_order", True):  # batches may come from any worker
        return False
    if not all(same_values(batches[0], other) for other in batches[1:count]):
        return False
    if len(batches) > count:
        return not same_values(batches[0], batches[count])
    return samples_differ(batches[0])


def _iterated_in_full(subject: Subject) -> str | None:
    """The attribute that ``__iter__`` goes through from end to end, if its source leaves no doubt."""
    dataset = subject.loader.dataset
    holders = [value for _, value in walk(dataset, "") if not isinstance(value, _DATA)]
    named = set().union(*(sample_code(holder).names for holder in holders))
    method = getattr(type(dataset), "__iter__", None)
    tree = None if method is None else syntax_tree(method)
    if named & _SPLITTING or init_may_change(subject.loader, "") or tree is None:
        return None
    if any(name.lower().startswith(_RANDOM) for name in named):
        return None
    statements, files = list(tree.body) if isinstance(tree, ast.FunctionDef) else [], set[str]()
    for statement in statements:
        if isinstance(statement, ast.With):
            for item in statement.items:
                if isinstance(item.optional_vars, ast.Name) and _is_whole(item.context_expr, dataset, files):
                    files.add(item.optional_vars.id)
            statements += statement.body
        over = _gone_through(statement)
        if over is not None and _is_whole(over, dataset, files):
            return f"{ast.unparse(over).replace('self.', f'{subject.dataset_name}.')}"
    return None


def _gone_through(statement: ast.stmt) -> ast.expr | None:
    """``X`` of ``for … in X``, ``yield from X`` and ``return iter(X)``."""
    if isinstance(statement, ast.For):
        targets = {node.id for node in ast.walk(statement.target) if isinstance(node, ast.Name)}
        used = {node.id for part in statement.body for node in ast.walk(part) if isinstance(node, ast.Name)}
        return statement.iter if targets & used else None  # else it only counts
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.YieldFrom):
        return statement.value.value
    if isinstance(statement, ast.Return) and isinstance(statement.value, ast.Call):
        return statement.value
    return None


def _is_whole(value: ast.expr, dataset: Any, files: set[str]) -> bool:
    """Whether an expression is the same in each worker: stored data, and functions that keep all of it."""
    if isinstance(value, ast.Call):
        if isinstance(value.func, ast.Attribute):  # self.path.open()
            return value.func.attr == "open" and _is_whole(value.func.value, dataset, files)
        name = value.func.id if isinstance(value.func, ast.Name) else None
        return name in _WHOLE and all(_is_whole(item, dataset, files) for item in value.args)
    if attribute := own_attribute(value):
        return isinstance(stored(dataset).get(attribute), _DATA)
    return isinstance(value, ast.Constant) or (isinstance(value, ast.Name) and value.id in files)


def fewer_shards_than_workers(subject: Subject) -> Iterator[Finding]:
    """A stream split by shards that leaves workers without one."""
    loader = subject.loader
    if not is_stream(loader) or loader.num_workers < 2:
        return
    for path, shards in _shards(subject):
        idle = loader.num_workers - shards
        if 0 < shards < loader.num_workers:
            yield report(
                subject,
                "fewer-shards-than-workers",
                f"{path} has {shards} shard{'s' * (shards != 1)} for {words.workers(loader.num_workers)}:"
                f" {words.workers(idle)} {'has' if idle == 1 else 'have'} nothing to read.",
                f"{set_to(subject, num_workers=shards)}, or write the data as {loader.num_workers} shards or "
                "more.",
                harm=idle / loader.num_workers,
            )


def _shards(subject: Subject) -> Iterator[tuple[str, int]]:
    """How many shards the libraries' streams have, and ``self.shards[worker::workers]`` of the user's."""
    for path, value in walk(subject.loader.dataset, subject.dataset_name):
        count = shard_count(value)
        if count is not None:
            yield (f"{path}.urls" if "urls" in stored(value) else path), count
            return
    code = sample_code(subject.loader.dataset)
    if "get_worker_info" not in code.names:
        return
    for function in code.functions:
        for node in ast.walk(syntax_tree(function) or ast.Module([], [])):
            shards = stored(subject.loader.dataset).get(_split_attribute(node))
            if isinstance(shards, (list, tuple, np.ndarray)):
                yield f"{subject.dataset_name}.{_split_attribute(node)}", len(shards)
                return


def _split_attribute(node: ast.AST) -> str:
    """``shards`` of ``self.shards[worker::workers]``; empty for other code."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice):
        return ""
    step = node.slice.step
    return "" if step is None or isinstance(step, (ast.Constant, ast.UnaryOp)) else own_attribute(node.value)


def length_wrong(subject: Subject) -> Iterator[Finding]:
    """A stream whose first batches already hold more samples than it says it has."""
    loader, dataset = subject.loader, subject.loader.dataset
    if not is_stream(loader) or not hasattr(type(dataset), "__len__") or any(iterable_not_split(subject)):
        return
    try:
        promised = len(dataset)  # type: ignore[arg-type]  # a stream may have a length
    except (TypeError, NotImplementedError):
        return
    rows = [len(found[0]) if (found := arrays(batch)) and found[0].ndim else 1 for batch in subject.batches]
    delivered = sum(rows) if loader.batch_size is not None else len(rows)
    if delivered > promised:
        yield report(
            subject,
            "length-wrong",
            f"len({subject.dataset_name}) is {promised:,}, but its first {len(rows)} batches hold"
            f" {delivered:,} samples.",
            f"Return the number of samples that all workers yield together from"
            f" {type(dataset).__name__}.__len__, or remove __len__.",
        )


def drop_last_loses(subject: Subject) -> Iterator[Finding]:
    """`drop_last` that discards a large part of an epoch, or the same samples in every epoch."""
    loader = subject.loader
    if is_stream(loader) or not loader.drop_last or loader.batch_size is None:
        return
    try:
        samples = len(loader.sampler)  # type: ignore[arg-type]  # a sampler may have a length
    except (TypeError, NotImplementedError):
        return
    lost = samples % loader.batch_size
    is_same_part = isinstance(loader.sampler, torch.utils.data.SequentialSampler)
    if samples == 0 or lost / samples < (0.02 if is_same_part else 0.1):
        return
    left = (
        ", so an epoch has no batch" if lost == samples else f": {words.percent(lost / samples)} of an epoch"
    )
    again = ", the same ones every time" if is_same_part and lost < samples else ""
    yield report(
        subject,
        "drop-last-loses",
        f"drop_last=True discards {lost:,} of {samples:,} samples{again}{left}.",
        f"Set drop_last=False, or a batch_size that leaves a smaller rest than {loader.batch_size:,} does.",
        harm=lost / samples,
    )
