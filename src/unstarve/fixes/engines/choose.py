"""Which engine runs a loader, and why."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from torch.utils.data import DataLoader

ENGINES = ("ring", "stock")  # fastest first


@dataclass(frozen=True)
class Choice:
    """The engine that runs a loader; `refused` are the faster ones and why each cannot."""

    engine: str
    reason: str
    refused: tuple[tuple[str, str], ...]


def choose(loader: DataLoader[Any], engine: str = "auto") -> Choice:
    """Return the first engine that can run the loader, or the one that is asked for.

    Raises ValueError for a name that is no engine, and for one that cannot give the loader's batches.
    """
    if engine == "auto":
        return _first_that_can(loader)
    if engine not in ENGINES:
        raise ValueError(f"engine must be 'auto' or one of {', '.join(ENGINES)}, not {engine!r}")
    reason = module_of(engine).why_not(loader)
    if reason is not None:
        raise ValueError(f"engine {engine!r} cannot run this loader: {reason}")
    return Choice(engine, "asked for", ())


def module_of(engine: str) -> ModuleType:
    """Return the module that implements an engine."""
    return import_module(f"unstarve.fixes.engines.{engine}")


def _first_that_can(loader: DataLoader[Any]) -> Choice:
    refused: list[tuple[str, str]] = []
    for engine in ENGINES:
        module = module_of(engine)
        reason = module.why_not(loader)
        if reason is None:
            return Choice(engine, module.why(loader), tuple(refused))
        refused.append((engine, reason))
    raise AssertionError("the stock engine refuses nothing")
