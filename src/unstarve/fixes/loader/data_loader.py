"""torch's DataLoader with the same arguments, batches, order and seeds, run the fastest way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from torch.utils.data import DataLoader as TorchDataLoader

from unstarve.fixes.loader.engines.choose import Choice, check_name, choose
from unstarve.marks import ChoosesEngine
from unstarve.model import Tuning
from unstarve.tune.explain import explain
from unstarve.tune.loader import TUNED, tuner_for

T = TypeVar("T", covariant=True)


class DataLoader(TorchDataLoader[T], ChoosesEngine):
    """A `torch.utils.data.DataLoader` that picks the fastest way to give the same batches.

    It takes torch's arguments and gives torch's batches, in torch's order, drawing the same random numbers
    from the same generators. `loader.engine` says how, `loader.explain()` why:

    ``views``
        samples are rows of tensors in memory and the order is the dataset's: batches are slices. They **share
        memory with the dataset**: a batch that is changed in place changes it, and one that is saved, or sent
        to another process, takes all of it along. `copy=True` rules this engine out.
    ``gather``
        samples are rows of tensors in memory: a batch is one compiled copy of its rows, made without workers
        whatever `num_workers` says. With `pin_memory` and a GPU a thread makes them ahead in pinned memory.
    ``threads``
        the dataset reads without the GIL, as unstarve's do from files, packed files and images: threads
        make batches ahead, `num_workers` of them or a few, in memory that is used again.
    ``ring``
        any other dataset with workers: theirs are torch's worker processes, whose batches are handed over in
        shared memory that is used again.
    ``stock``
        torch's own way, for all else.

    Rows in memory are a tensor, a `TensorDataset`, a `StackDataset` or `Subset` of them, and datasets of
    unstarve that have a method `rows()`. A dataset of yours may have one, too: it returns a tensor, or a
    tuple, list or dict of them, such that sample i is row i of each; `rows_are_samples = True` in its class
    says so.

    `engine` asks for one engine by name and raises ValueError where it cannot give the batches. The choice is
    made anew for each epoch: a dataset may have its rows in memory only after the first.

    `autotune=True` lets it find its number of workers and prefetch depth while training goes on, where an
    engine with workers runs it: see `unstarve.autotune`, whose arguments it may be given as a dict.
    """

    tunes_itself = True

    def __init__(
        self,
        *args: Any,
        engine: str = "auto",
        copy: bool = False,
        autotune: bool | Mapping[str, Any] = False,
        **kwargs: Any,
    ) -> None:
        check_name(engine)
        super().__init__(*args, **kwargs)
        self._engine_asked_for = engine
        self.copy = copy
        if engine != "auto":
            self._choice()
        self._tuner = None if autotune is False else tuner_for(self, {} if autotune is True else autotune)

    @property
    def engine(self) -> str:
        """The engine that would run an epoch that begins now."""
        return self._choice().engine

    @property
    def tuning(self) -> Tuning | None:
        """What was tried and found so far; None without `autotune`."""
        return None if self._tuner is None else self._tuner.tuning

    def explain(self) -> str:
        """Say which engine runs this loader, why, and why the faster ones cannot; then what tuning found."""
        choice = self._choice()
        lines = [f"{choice.engine}: {choice.reason}"]
        lines += [f"  not {engine}: {reason}" for engine, reason in choice.refused]
        if self.tuning is not None:
            lines.append(explain(self.tuning))
        return "\n".join(lines)

    def __iter__(self) -> Any:
        choice = self._choice()
        if self._tuner is not None and self._tuner.why_not is None and choice.engine in TUNED:
            return self._tuner.iterate(self)
        iterator: Iterator[T] = choice.iterate()
        return iterator

    def _choice(self) -> Choice:
        return choose(self, self._engine_asked_for, copy=self.copy)
