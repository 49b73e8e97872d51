"""Which engine runs a loader, and why."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from torch.utils.data import DataLoader

from unstarve.model.engine_names import ENGINES


@dataclass(frozen=True)
class Choice:
    """The engine that runs a loader; `refused` are the faster ones and why each cannot."""

    engine: str
    reason: str
    iterate: Callable[[], Iterator[Any]]
    """Over an epoch that begins now."""
    refused: tuple[tuple[str, str], ...]


def choose(loader: DataLoader[Any], engine: str = "auto", *, copy: bool = False) -> Choice:
    """Return the first engine that can run the loader, or the one that is asked for.

    `copy` rules out those whose batches share memory with the dataset. Raises ValueError for a name that
    is no engine, and for one that cannot give the loader's batches.
    """
    check_name(engine)
    if engine == "auto":
        return _first_that_can(loader, copy)
    planned = _plan(engine, loader, copy)
    if isinstance(planned, str):
        raise ValueError(f"engine {engine!r} cannot run this loader: {planned}")
    return Choice(engine, "asked for", planned, ())


def check_name(engine: str) -> None:
    """Raise ValueError for what is neither an engine nor "auto"."""
    if engine != "auto" and engine not in ENGINES:
        raise ValueError(f"engine must be 'auto' or one of {', '.join(ENGINES)}, not {engine!r}")


@functools.cache
def _module_of(engine: str) -> ModuleType:
    return import_module(f"unstarve.fixes.loader.engines.{engine}")


def _first_that_can(loader: DataLoader[Any], copy: bool) -> Choice:
    refused: list[tuple[str, str]] = []
    for engine in ENGINES:
        planned = _plan(engine, loader, copy)
        if not isinstance(planned, str):
            return Choice(engine, _module_of(engine).why(loader), planned, tuple(refused))
        refused.append((engine, planned))
    raise AssertionError("the stock engine refuses nothing")


def _plan(engine: str, loader: DataLoader[Any], copy: bool) -> Callable[[], Iterator[Any]] | str:
    module = _module_of(engine)
    if copy and getattr(module, "SHARES_MEMORY", False):
        return "its batches share memory with the dataset, and copy=True asks for memory of their own"
    planned: Callable[[], Iterator[Any]] | str = module.plan(loader)
    return planned
