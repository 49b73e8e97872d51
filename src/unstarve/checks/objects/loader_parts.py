"""What the checks ask of a loader: how its workers start, what they receive, what may differ among them."""

from __future__ import annotations

import multiprocessing
import numbers
import re
import types
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data._utils.collate import default_collate, default_convert

from unstarve.advise.framework_words import how_to_set
from unstarve.checks.objects.attributes import Place, places, walk
from unstarve.checks.objects.sample_code import WORKER_NAMES, sample_code
from unstarve.checks.objects.subject import Subject
from unstarve.collect.loader_origin import Origin
from unstarve.marks import SITE, ChoosesEngine
from unstarve.model.checks import finding
from unstarve.model.finding import Finding

_PLAIN = (str, bytes, numbers.Number, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)


def report(subject: Subject, id: str, message: str, fix: str, *, harm: float = 0.0) -> Finding:
    """A finding at the line that creates the loader."""
    return finding(id, message, fix, file=subject.file, line=subject.line, harm=harm)


def set_to(subject: Subject, **arguments: Any) -> str:
    """The change of the loader's arguments, in the words of the framework that creates it; no full stop."""
    site = vars(subject.loader).get(SITE)
    return how_to_set(subject.name, None if site is None else Origin(*site).maker, arguments)


def start_method(loader: DataLoader[Any]) -> str:
    """How workers start: ``fork``, ``spawn`` or ``forkserver``. Asking does not fix the default."""
    context = loader.multiprocessing_context or multiprocessing
    chosen = context.get_start_method(allow_none=True)
    return str(chosen or multiprocessing.get_all_start_methods()[0])


def is_forked(loader: DataLoader[Any]) -> bool:
    """Whether workers begin with a copy of the training process."""
    return loader.num_workers > 0 and start_method(loader) == "fork"


def is_torchs_own(loader: DataLoader[Any]) -> bool:
    """Whether torch itself makes and sends the batches, not an engine of `unstarve.DataLoader`."""
    return not isinstance(loader, ChoosesEngine)


def is_stream(loader: DataLoader[Any]) -> bool:
    """Whether samples come from ``__iter__``, and so once per worker unless the dataset splits them."""
    return isinstance(loader.dataset, IterableDataset)


def roots(subject: Subject) -> list[tuple[str, Any]]:
    """What every worker receives, with the user's names: the dataset, and functions that are not torch's."""
    loader = subject.loader
    parts: list[tuple[str, Any]] = [(subject.dataset_name, loader.dataset)]
    if not any(loader.collate_fn is known for known in (default_collate, default_convert)):
        parts.append((f"{subject.name}.collate_fn", loader.collate_fn))
    if loader.worker_init_fn is not None:
        parts.append((f"{subject.name}.worker_init_fn", loader.worker_init_fn))
    return parts


def held_by_samples(subject: Subject) -> Iterator[Place]:
    """Everything that the dataset and the collate function hold."""
    for name, root in roots(subject):
        if root is not subject.loader.worker_init_fn:
            yield from places(root, name)


def is_used(place: Place, subject: Subject) -> bool:
    """Whether code that makes samples mentions the attribute that leads to the value."""
    if place.owner is None or isinstance(place.owner, types.FunctionType):
        return True
    attribute = place.attribute
    if attribute in ("_parameters", "_buffers", "_tokenizer"):  # used if the model or tokenizer is
        root = next(name for name, _ in roots(subject) if place.path.startswith(name))
        attribute = re.split(r"[.\[]", place.path.removeprefix(root))[1]
    users = (place.owner, subject.loader.dataset, subject.loader.collate_fn)
    return any(attribute in sample_code(user).names for user in users)


def may_differ_in_workers(place: Place, subject: Subject) -> bool:
    """Whether some code might replace the value in a worker: then nothing is known about it."""
    for owner in (place.owner, subject.loader.dataset):
        if owner is not None and sample_code(owner).names & WORKER_NAMES:
            return True
    return init_may_change(subject.loader, place.attribute)


def init_may_change(loader: DataLoader[Any], attribute: str) -> bool:
    """Whether `worker_init_fn` can reach the dataset: by the worker's info, or an object it holds."""
    init = loader.worker_init_fn
    if init is None:
        return False
    code = sample_code(init)
    if code.names & {"get_worker_info", "worker_info", "_worker_info", "dataset", attribute}:
        return True
    held = [value for _, value in walk(init, "") if value is not init] + list(code.globals.values())
    return not code.functions or any(not isinstance(value, _PLAIN) for value in held if value is not None)
