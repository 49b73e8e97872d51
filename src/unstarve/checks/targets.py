"""Turn what the user names or passes into loaders to check: a loader, a dataset, or several of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch.utils.data import DataLoader, Dataset

from unstarve.checks.loader_check import LoaderCheck
from unstarve.checks.names import names_of
from unstarve.errors import UsageError
from unstarve.loader_proxy import LoaderProxy

_BATCH = 4
_WORKERS = 2
"""Of the loader that a dataset is checked in: most of its troubles need workers."""


def checks_of(value: Any, name: str, complain: Callable[[str], None]) -> list[LoaderCheck]:
    """The checks of every loader and dataset in `value`, which the user calls `name`; they have begun.

    Raises `UsageError` for anything else.
    """
    return [_check_of(one, called, complain) for called, one in _members(value, name)]


def _members(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _members(
                one, key if isinstance(key, str) and key.isidentifier() else f"{name}[{key!r}]"
            )
    elif isinstance(value, (list, tuple)):
        for place, one in enumerate(value):
            yield from _members(one, f"{name}[{place}]")
    else:
        yield name, value


def _check_of(value: Any, name: str, complain: Callable[[str], None]) -> LoaderCheck:
    if isinstance(value, LoaderProxy):
        value = value.dataloader
    if isinstance(value, DataLoader):
        return LoaderCheck(value, names_of(value, name), complain=complain)
    if is_dataset(value):
        loader = _loader_for(value)
        return LoaderCheck(
            loader,
            names_of(loader, dataset=name)._replace(file=None, line=None),
            complain=complain,
            of_dataset=True,
        )
    raise UsageError(f"{name} must be a DataLoader or a dataset, got {type(value).__name__}")


def is_dataset(value: Any) -> bool:
    """Whether a DataLoader could take its samples from it."""
    if isinstance(value, type):
        return False
    sized = hasattr(value, "__getitem__") and hasattr(value, "__len__")
    return isinstance(value, Dataset) or (sized and not isinstance(value, (str, bytes)))


def _loader_for(dataset: Any) -> DataLoader[Any]:
    # Samples stay apart: the dataset may need a collate_fn that we do not know.
    return DataLoader(dataset, batch_size=_BATCH, num_workers=_WORKERS, collate_fn=list)
