"""Try a setting out: a loader over the user's dataset, run as fast as it goes for a moment."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

import torch
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader, IterableDataset, Sampler

from unstarve.errors import UsageError
from unstarve.evaluate.evaluator.first_batches import shut_down
from unstarve.evaluate.evaluator.timed_iterator import quick_size
from unstarve.intervals import turn_order
from unstarve.model import LoaderArguments, Tried

S = TypeVar("S")

MOST_ROUNDS = 5
_USUAL_ROUNDS = 3
_HOPELESS = 0.5
"""Of the fastest's rate: what is slower than this in its first round is not measured again."""
_MEASURING = 0.6
"""Of a burst's share of the time; the rest goes to starting workers."""
_SHORTEST_S, _LONGEST_S = 0.05, 1.0


def burst_s(budget_s: float, settings: int) -> float:
    """How long to measure one setting once, so that the usual number of rounds fits."""
    return min(max(_MEASURING * budget_s / (settings * _USUAL_ROUNDS), _SHORTEST_S), _LONGEST_S)


def in_rounds(
    settings: Sequence[LoaderArguments],
    measure: Callable[[LoaderArguments], float | None],
    *,
    budget_s: float,
    clock: Callable[[], float],
    say: Callable[[str], object],
) -> tuple[Tried, ...]:
    """The settings' rates, in their order; those that could not be measured, or in time, are left out.

    `measure` gives a rate, or None where there was none to be had. Every other round goes backwards, and
    none is begun that would not end in time; but the first setting is measured whatever that takes.
    """
    deadline = clock() + budget_s
    rates: dict[LoaderArguments, list[float]] = {setting: [] for setting in settings}
    left, round_s = list(settings), 0.0
    for number in range(MOST_ROUNDS):
        began = clock()
        if number and began + round_s > deadline:
            break  # half a round is none: only settings of the same round can be compared
        for setting in turn_order(left, number):
            if clock() >= deadline and not number and any(rates.values()):
                break
            say(f"round {number + 1}: {_named(setting)}")
            rate = measure(setting)
            if rate is not None:
                rates[setting].append(rate)
        taken_s, measured = clock() - began, len(left)
        best = max((found[-1] for found in rates.values() if len(found) == number + 1), default=0.0)
        # Whoever missed this round has nothing to be compared with in the next.
        left = [s for s in left if len(rates[s]) == number + 1 and rates[s][-1] >= _HOPELESS * best]
        round_s = taken_s * len(left) / measured if measured else 0.0
    return _tried(rates)


def _tried(rates: dict[LoaderArguments, list[float]]) -> tuple[Tried, ...]:
    return tuple(Tried(setting, tuple(found)) for setting, found in rates.items() if found)


def _named(setting: LoaderArguments) -> str:
    words = [f"num_workers={setting.num_workers}", f"batch_size={setting.batch_size}"]
    if setting.prefetch_factor is not None:
        words.append(f"prefetch_factor={setting.prefetch_factor}")
    if setting.pin_memory:
        words.append("pin_memory=True")
    return ", ".join(words)


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
