"""torch's DataLoader with the same arguments, batches, order and seeds, run by the fastest engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from torch.utils.data import DataLoader as TorchDataLoader

from unstarve.fixes.loader.engines.choose_engine import Choice, choose
from unstarve.model import Tuning
from unstarve.model.engines import WORKER_ENGINES, Engine, check_engine
from unstarve.tune.explain import explain
from unstarve.tune.loader import tuner_for

T = TypeVar("T", covariant=True)


class DataLoader(TorchDataLoader[T]):
    """A `torch.utils.data.DataLoader` that gives the same batches with the fastest engine.

    It takes torch's arguments and gives torch's batches, in torch's order, drawing the same random numbers
    from the same generators. `loader.engine` names the engine, `loader.explain()` says why it was chosen:

    ``views``
        Samples are rows of tensors in memory and the order is the dataset's: batches are slices. They **share
        memory with the dataset**: changing a batch in place changes the dataset, and a batch that is saved or
        sent to another process takes the whole dataset along. `copy=True` rules this engine out.
    ``gather``
        Samples are rows of tensors in memory: a batch is one compiled copy of its rows, made without workers
        whatever `num_workers` is. With `pin_memory` and a GPU a thread makes batches ahead in pinned memory.
    ``threads``
        The dataset reads without the GIL, as unstarve's datasets of files, packed files and images do:
        threads (`num_workers`, or a few) make batches ahead in reused memory.
    ``ring``
        Any other dataset with workers: torch's worker processes hand batches over in reused shared memory.
    ``stock``
        torch's own way, for everything else.

    Rows in memory are a tensor, a `TensorDataset`, a `StackDataset` or `Subset` of them, and any of
    unstarve's datasets with a method `rows()`. Your own dataset can have one, too: it returns a tensor, or a
    tuple, list or dict of tensors, such that sample i is row i of each; set `rows_are_samples = True` in its
    class.

    `engine` requests one engine by name and raises ValueError if it cannot give the batches. The choice is
    made again for each epoch: a dataset may have its rows in memory only after the first.

    `autotune=True` searches for the number of workers and the prefetch depth while training runs, if an
    engine with workers runs the loader; pass a dict for the arguments of `unstarve.autotune`.
    """

    tunes_itself = True

    def __init__(
        self,
        *args: Any,
        engine: str = Engine.AUTO,
        copy: bool = False,
        autotune: bool | Mapping[str, Any] = False,
        **kwargs: Any,
    ) -> None:
        check_engine(engine)
        super().__init__(*args, **kwargs)
        self._engine_asked_for = engine
        self.copy = copy
        if engine != Engine.AUTO:
            self._choice()
        self._tuner = None if autotune is False else tuner_for(self, {} if autotune is True else autotune)

    @property
    def engine(self) -> str:
        """The engine that would run an epoch that begins now."""
        return self._choice().engine

    @property
    def tuning(self) -> Tuning | None:
        """The settings tried and the results so far; None without `autotune`."""
        return None if self._tuner is None else self._tuner.tuning

    def explain(self) -> str:
        """Say which engine runs this loader, why, why the faster ones cannot, and what tuning found."""
        choice = self._choice()
        lines = [f"{choice.engine}: {choice.reason}"]
        lines += [f"  not {engine}: {reason}" for engine, reason in choice.refused]
        if self.tuning is not None:
            lines.append(explain(self.tuning))
        return "\n".join(lines)

    def __iter__(self) -> Any:
        choice = self._choice()
        if self._tuner is not None and self._tuner.why_not is None and choice.engine in WORKER_ENGINES:
            return self._tuner.iterate(self)
        iterator: Iterator[T] = choice.iterate()
        return iterator

    def _choice(self) -> Choice:
        return choose(self, self._engine_asked_for, copy=self.copy)
