"""torch's DataLoader with the same arguments, batches, order and seeds, run the fastest way."""

from __future__ import annotations

from typing import Any, TypeVar

from torch.utils.data import DataLoader as TorchDataLoader

from unstarve.fixes.engines.choose import Choice, choose, module_of

T = TypeVar("T", covariant=True)


class DataLoader(TorchDataLoader[T]):
    """A `torch.utils.data.DataLoader` that picks the fastest way to give the same batches.

    `engine` is "auto" or the name of one engine; `loader.engine` says which runs and `loader.explain()` why.
    """

    def __init__(self, *args: Any, engine: str = "auto", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._choice: Choice = choose(self, engine)

    @property
    def engine(self) -> str:
        """The engine that runs this loader."""
        return self._choice.engine

    def explain(self) -> str:
        """Say which engine runs this loader, why, and why the faster ones cannot."""
        lines = [f"{self._choice.engine}: {self._choice.reason}"]
        lines += [f"  not {engine}: {reason}" for engine, reason in self._choice.refused]
        return "\n".join(lines)

    def _get_iterator(self) -> Any:
        return module_of(self._choice.engine).iterate(self)
