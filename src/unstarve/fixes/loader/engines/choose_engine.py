"""Choose the engine for a loader, and say why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader

from unstarve.fixes.loader.engines.memory_engines import plan_gather, plan_views, why_gather, why_views
from unstarve.fixes.loader.engines.process_engines import plan_ring, plan_stock, why_ring, why_stock
from unstarve.fixes.loader.engines.thread_engine import plan_threads, why_threads
from unstarve.model.engine_names import ENGINES, Engine, check_engine

Iterate = Callable[[], Iterator[Any]]
"""Returns a fresh iterator over an epoch that begins now."""


@dataclass(frozen=True)
class _Way:
    plan: Callable[[DataLoader[Any]], Iterate | str]
    """How to iterate; or, in one sentence, why this engine cannot give the batches torch's loader would."""
    why: Callable[[DataLoader[Any]], str]
    """Why it is the right engine here, in one sentence."""
    shares_memory: bool = False
    """Whether its batches share memory with the dataset."""


_WAYS: dict[str, _Way] = {
    Engine.VIEWS: _Way(plan_views, why_views, shares_memory=True),
    Engine.GATHER: _Way(plan_gather, why_gather),
    Engine.THREADS: _Way(plan_threads, why_threads),
    Engine.RING: _Way(plan_ring, why_ring),
    Engine.STOCK: _Way(plan_stock, why_stock),
}


@dataclass(frozen=True)
class Choice:
    """The engine that runs a loader; `refused` lists the faster engines and why each cannot."""

    engine: str
    reason: str
    iterate: Iterate
    refused: tuple[tuple[str, str], ...]


def choose(loader: DataLoader[Any], engine: str = Engine.AUTO, *, copy: bool = False) -> Choice:
    """Return the first engine that can run the loader, or the requested one.

    `copy` rules out engines whose batches share memory with the dataset. Raises ValueError for an unknown
    name and for an engine that cannot give the loader's batches.
    """
    check_engine(engine)
    if engine == Engine.AUTO:
        return _first_that_can(loader, copy)
    planned = _plan(engine, loader, copy)
    if isinstance(planned, str):
        raise ValueError(f"engine {engine!r} cannot run this loader: {planned}")
    return Choice(engine, "requested", planned, ())


def _first_that_can(loader: DataLoader[Any], copy: bool) -> Choice:
    refused: list[tuple[str, str]] = []
    for engine in ENGINES:
        planned = _plan(engine, loader, copy)
        if not isinstance(planned, str):
            return Choice(engine, _WAYS[engine].why(loader), planned, tuple(refused))
        refused.append((engine, planned))
    raise AssertionError("the stock engine refuses nothing")


def _plan(engine: str, loader: DataLoader[Any], copy: bool) -> Iterate | str:
    way = _WAYS[engine]
    if copy and way.shares_memory:
        return "its batches share memory with the dataset, and copy=True rules that out"
    return way.plan(loader)
