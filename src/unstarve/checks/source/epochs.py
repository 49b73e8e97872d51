"""Streams that every worker delivers whole, and epochs that the shuffling never hears of."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unstarve.checks.source.project import LoaderCall, Project, own_statements
from unstarve.checks.source.syntax import Source, argument, methods, names_in, takes_unknown, written
from unstarve.model.checks import finding
from unstarve.model.finding import Finding

_SAMPLER = re.compile(r"torch\.utils\.data\.(distributed\.)?DistributedSampler")
_SPLITS = {
    "get_worker_info",
    "worker_info",
    "split_by_worker",
    "split_by_node",
    "split_dataset_by_node",
    "islice",
}


def iterable_not_split(project: Project) -> Iterator[Finding]:
    """An ``IterableDataset`` that never asks which worker it is in."""
    for dataset in project.datasets:
        if not dataset.is_iterable or "__iter__" not in methods(dataset.node):
            continue
        if dataset.source.mentions(*_SPLITS):
            continue  # perhaps in a helper
        for loader in project.loaders_of(dataset):
            if (
                not loader.has_workers(2)
                or not loader.is_complete
                or loader.argument("worker_init_fn") is not None
            ):
                continue
            yield finding(
                "iterable-not-split",
                f"{dataset.name}.__iter__ never asks which worker it runs in: each of the {loader.crew} of "
                f"{loader.name} delivers all samples.",
                "worker = torch.utils.data.get_worker_info()  # in __iter__\n"
                "first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)\n"
                "yield from itertools.islice(samples, first, None, step)",
                file=dataset.source.path,
                line=methods(dataset.node)["__iter__"].lineno,
            )


def set_epoch_missed(project: Project) -> Iterator[Finding]:
    """A ``DistributedSampler`` that shuffles, a loop over epochs, and no ``set_epoch`` in the file."""
    for loader in project.loaders:
        sampler = _sampler(loader)
        if sampler is None or takes_unknown(sampler) or _is(argument(sampler, "shuffle", 3), False):
            continue
        epochs = _epoch_loop(loader.source, loader)
        if epochs is None or loader.source.mentions("set_epoch"):
            continue
        given = loader.argument("sampler")
        is_named = isinstance(given, (ast.Name, ast.Attribute))
        name = written(given) if given is not None and is_named else f"{loader.name}.sampler"
        yield finding(
            "set-epoch-missed",
            f"{loader.name} is iterated in the loop over {written(epochs.target)}, and nothing calls "
            f"{name}.set_epoch.",
            f"{name}.set_epoch({written(epochs.target)})  # the first line of the loop",
            file=loader.source.path,
            line=epochs.lineno,
        )


def set_epoch_lost(project: Project) -> Iterator[Finding]:
    """``dataset.set_epoch`` while persistent workers keep the dataset they started with."""
    for loader in project.loaders:
        dataset = loader.dataset
        if (
            dataset is None
            or not loader.has_workers()
            or not _is(loader.argument("persistent_workers"), True)
        ):
            continue
        told = methods(dataset.node).get("set_epoch")
        if told is None or names_in(dataset.node) & {"share_memory_", "Value", "Array", "SharedMemory"}:
            continue
        called = [
            node
            for node in loader.source.nodes
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "set_epoch"
            and written(node.func.value) in (loader.dataset_name, f"{loader.name}.dataset")
        ]
        for call in called:
            yield finding(
                "set-epoch-lost",
                f"{written(call.func)} changes {dataset.name} in the training process only: the "
                f"{loader.crew} of {loader.name} are persistent, and each keeps its own copy.",
                f"# in {dataset.name}.__init__\n"
                "self.epoch = torch.zeros((), dtype=torch.int64).share_memory_()\n"
                "self.epoch.fill_(epoch)  # in set_epoch: all processes see it",
                file=loader.source.path,
                line=call.lineno,
            )


def _sampler(loader: LoaderCall) -> ast.Call | None:
    """The call that makes the loader's DistributedSampler; None when it is another sampler, or not known."""
    given = loader.argument("sampler")
    if isinstance(given, ast.Name):
        made = [
            node.value
            for node in own_statements(loader.within)
            if isinstance(node, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == given.id for target in node.targets)
        ]
        given = made[0] if len(made) == 1 else None
    if isinstance(given, ast.Call) and _SAMPLER.fullmatch(loader.source.full_name(given.func)):
        return given
    return None


def _epoch_loop(source: Source, loader: LoaderCall) -> ast.For | None:
    """The loop of more than one epoch that iterates the loader, in the function that creates it."""
    for node in own_statements(loader.within):
        if not isinstance(node, ast.For) or not _is_range(source, node.iter):
            continue
        for inner in ast.walk(node):
            if isinstance(inner, ast.For) and inner is not node and loader.name in _iterated(inner.iter):
                return node
    return None


def _is_range(source: Source, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or source.full_name(node.func) != "range" or not node.args:
        return False
    return not (len(node.args) == 1 and _is(node.args[0], 1))


def _iterated(node: ast.expr) -> set[str]:
    """What a loop iterates: ``loader`` of ``enumerate(tqdm(loader))``."""
    if isinstance(node, ast.Call):
        return {name for one in node.args for name in _iterated(one)}
    return {written(node)} if isinstance(node, (ast.Name, ast.Attribute)) else set()


def _is(node: ast.expr | None, value: bool | int) -> bool:
    """Whether `node` is this constant; 1 is not True."""
    return isinstance(node, ast.Constant) and type(node.value) is type(value) and node.value == value
