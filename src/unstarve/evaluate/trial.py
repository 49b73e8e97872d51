"""Try a setting out: a loader over the user's dataset, run as fast as it goes for a moment."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader, IterableDataset, Sampler

from unstarve.errors import UsageError
from unstarve.evaluate.reading import shut_down
from unstarve.evaluate.rounds import burst_s, in_rounds
from unstarve.evaluate.timed_iterator import quick_size
from unstarve.model import LoaderArguments, Tried

_PASSED_ON = {
    "collate_fn", "drop_last", "in_order", "multiprocessing_context", "pin_memory", "prefetch_factor",
    "timeout", "worker_init_fn",
}  # fmt: skip
_NEED_WORKERS = {"prefetch_factor", "multiprocessing_context", "timeout"}
_SEED = 0


class Trials:
    """Loaders over one dataset. Indices are drawn at random without end, and no global stream is touched."""

    def __init__(
        self,
        dataset: Any,
        options: Mapping[str, Any],
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.dataset = dataset
        self.options = _checked(dataset, options)
        self.clock = clock
        self._generator = torch.Generator().manual_seed(_SEED)
        self._order = None if is_iterable(dataset) else _Endless(len(dataset), self._generator)

    def loader(self, setting: LoaderArguments, **more: Any) -> DataLoader[Any]:
        """A loader of torch's own with this setting."""
        given = {**self.options, "pin_memory": setting.pin_memory, **more}
        if setting.prefetch_factor is not None:
            given["prefetch_factor"] = setting.prefetch_factor
        if not setting.num_workers:
            given = {name: value for name, value in given.items() if name not in _NEED_WORKERS}
        with _unwarned():
            return DataLoader(
                self.dataset,
                batch_size=setting.batch_size,
                num_workers=setting.num_workers,
                sampler=self._order,
                generator=self._generator,
                **given,
            )

    def rate(self, setting: LoaderArguments, seconds: float, *, device: str | None = None) -> float | None:
        """Samples per second over `seconds`, once every worker has delivered; None if the data ends before.

        With a `device`, each batch is copied to it.
        """
        loader = self.loader(setting)
        with _unwarned():
            iterator = iter(loader)
        try:
            crew = max(setting.num_workers, 1)
            if sum(1 for _ in islice(iterator, crew)) < crew:
                return None
            samples, begin = 0, self.clock()
            for count, batch in enumerate(iterator, start=1):
                if device is not None:
                    tree_map(lambda part: _copied(part, device), batch)
                size = quick_size(batch)
                samples += size if size >= 0 else setting.batch_size or 1
                # Workers deliver in turns: only whole turns are fair to slow and fast ones.
                if count % crew == 0 and self.clock() - begin >= seconds:
                    break
            if device == "cuda":
                torch.cuda.synchronize()  # copies that are still under way are part of it
            taken_s = self.clock() - begin
            return samples / taken_s if samples and taken_s > 0 else None
        finally:
            shut_down(iterator, loader)

    def compare(
        self,
        settings: Sequence[LoaderArguments],
        budget_s: float,
        say: Callable[[str], object],
        *,
        device: str | None = None,
    ) -> tuple[Tried, ...]:
        """The settings in turns, for about so many seconds together."""
        seconds = burst_s(budget_s, len(settings))
        return in_rounds(
            settings,
            lambda setting: self.rate(setting, seconds, device=device),
            budget_s=budget_s,
            clock=self.clock,
            say=say,
        )

    def start_s(self, loader: DataLoader[Any]) -> float:
        """From ``iter()`` to the first batch."""
        with _unwarned():
            begin = self.clock()
            iterator = iter(loader)
            next(iterator)
            taken_s = self.clock() - begin
        if not loader.persistent_workers:
            shut_down(iterator, loader)
        return taken_s


class _Endless(Sampler[int]):
    """All indices in random order, again and again; goes on where the loader before it has left off."""

    def __init__(self, length: int, generator: torch.Generator) -> None:
        self._length = length
        self._generator = generator
        self._stream = self._indices()

    def _indices(self) -> Iterator[int]:
        while True:
            yield from torch.randperm(self._length, generator=self._generator).tolist()

    def __iter__(self) -> Iterator[int]:
        return iter(self._stream)


@contextmanager
def _unwarned() -> Iterator[None]:
    """torch warns of more workers than cores, which is what is to be found out."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
        yield


def is_iterable(dataset: Any) -> bool:
    """Whether it yields samples in an order of its own."""
    return isinstance(dataset, IterableDataset)


def _copied(part: Any, device: str) -> Any:
    return part.to(device, non_blocking=True) if isinstance(part, torch.Tensor) else part


def _checked(dataset: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    unknown = set(options) - _PASSED_ON
    if unknown:
        raise UsageError(
            f"{', '.join(sorted(unknown))} cannot be given here; what is passed on to the loaders that are "
            f"tried is {', '.join(sorted(_PASSED_ON))}"
        )
    if isinstance(dataset, DataLoader):
        raise UsageError("give the dataset, as in find_num_workers(loader.dataset), not the DataLoader")
    if not is_iterable(dataset):
        try:
            empty = len(dataset) == 0
        except TypeError:
            raise UsageError(
                f"{dataset!r} is no dataset: it has no len() and is no IterableDataset"
            ) from None
        if empty:
            raise UsageError("the dataset is empty, so there is nothing to measure")
    return dict(options)
