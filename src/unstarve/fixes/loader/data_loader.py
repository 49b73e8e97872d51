"""A DataLoader that chooses the fastest engine; `unstarve.DataLoader` adds tuning to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from torch.utils.data import DataLoader as TorchDataLoader

from unstarve.fixes.loader.engines.choose_engine import Choice, choose
from unstarve.marks import ChoosesEngine
from unstarve.model.engine_names import Engine, check_engine
from unstarve.stack_levels import uncounted

T = TypeVar("T", covariant=True)


class EngineLoader(TorchDataLoader[T], ChoosesEngine):
    """`unstarve.DataLoader` without `autotune`; its docstring explains the arguments and the engines."""

    def __init__(self, *args: Any, engine: str = Engine.AUTO, copy: bool = False, **kwargs: Any) -> None:
        check_engine(engine)
        super().__init__(*args, **kwargs)
        self.requested_engine = engine
        self.copy = copy
        if engine != Engine.AUTO:
            self._choice()

    @property
    def engine(self) -> str:
        """The engine that would run an epoch that begins now."""
        return self._choice().engine

    def explain(self) -> str:
        """Say which engine runs this loader, why, and why the faster ones cannot."""
        choice = self._choice()
        refused = [f"  not {engine}: {reason}" for engine, reason in choice.refused]
        return "\n".join([f"{choice.engine}: {choice.reason}", *refused])

    @uncounted
    def __iter__(self) -> Any:
        iterator: Iterator[T] = self._choice().iterate()
        return iterator

    def _choice(self) -> Choice:
        return choose(self, self.requested_engine, copy=self.copy)
