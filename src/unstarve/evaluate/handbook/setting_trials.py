"""Try settings on the user's dataset: loaders run at full speed, in turns, and their rates are compared."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from statistics import median
from typing import Any, TypeVar

import torch
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader, IterableDataset, Sampler

from unstarve.collect.torch_iterator import shut_down
from unstarve.errors import UsageError
from unstarve.evaluate.evaluator.timed_iterator import quick_size
from unstarve.intervals import WORTH_IT, turn_order
from unstarve.model import LoaderArguments, Tried

S = TypeVar("S")

MOST_ROUNDS = 5
_USUAL_ROUNDS = 3
_HOPELESS = 0.5
"""Share of the fastest rate: a setting below it is not measured again."""
_MEASURING = 0.6
"""Share of a setting's time that is measured; the rest goes to starting workers."""
_SHORTEST_S, _LONGEST_S = 0.05, 1.0


def burst_s(budget_s: float, settings: int) -> float:
    """Seconds to measure one setting once so that the usual number of rounds fits."""
    return min(max(_MEASURING * budget_s / (settings * _USUAL_ROUNDS), _SHORTEST_S), _LONGEST_S)


def in_rounds(
    settings: Sequence[LoaderArguments],
    measure: Callable[[LoaderArguments], float | None],
    *,
    budget_s: float,
    clock: Callable[[], float],
    say: Callable[[str], object],
) -> tuple[Tried, ...]:
    """Return the settings' rates in the given order, without those that could not be measured in time.

    `measure` returns a rate, or None if there was none. No round is started that would not end in time, but
    the first setting is always measured.
    """
    deadline = clock() + budget_s
    rates: dict[LoaderArguments, list[float]] = {setting: [] for setting in settings}
    left, round_s = list(settings), 0.0
    for number in range(MOST_ROUNDS):
        began = clock()
        if number and began + round_s > deadline:
            break  # only settings of the same round can be compared, so half a round is useless
        for setting in turn_order(left, number):
            if clock() >= deadline and not number and any(rates.values()):
                break
            say(f"round {number + 1}: {_named(setting)}")
            rate = measure(setting)
            if rate is not None:
                rates[setting].append(rate)
        taken_s, measured = clock() - began, len(left)
        best = max((found[-1] for found in rates.values() if len(found) == number + 1), default=0.0)
        # A setting that missed this round cannot be compared in the next.
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
    """Loaders over one dataset. Random indices never end; global random streams are left alone."""

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
        """Return torch's own loader with this setting."""
        given = {**self.options, "pin_memory": setting.pin_memory, **more}
        if setting.prefetch_factor is not None:
            given["prefetch_factor"] = setting.prefetch_factor
        if not setting.num_workers:
            given = {name: value for name, value in given.items() if name not in _NEED_WORKERS}
        with unwarned():
            return DataLoader(
                self.dataset,
                batch_size=setting.batch_size,
                num_workers=setting.num_workers,
                sampler=self._order,
                generator=self._generator,
                **given,
            )

    def rate(self, setting: LoaderArguments, seconds: float, *, device: str | None = None) -> float | None:
        """Samples per second over `seconds`, after each worker's first batch; None if the data ends earlier.

        With a `device`, each batch is copied to it.
        """
        loader = self.loader(setting)
        with unwarned():
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
                # Workers deliver in turns: only whole turns are fair to slow and fast workers.
                if count % crew == 0 and self.clock() - begin >= seconds:
                    break
            if device == "cuda":
                torch.cuda.synchronize()  # unfinished copies count, too
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
        """Measure the settings in turns, for about `budget_s` seconds in total."""
        seconds = burst_s(budget_s, len(settings))
        return in_rounds(
            settings,
            lambda setting: self.rate(setting, seconds, device=device),
            budget_s=budget_s,
            clock=self.clock,
            say=say,
        )

    def start_s(self, loader: DataLoader[Any]) -> float:
        """Seconds from ``iter()`` to the first batch."""
        with unwarned():
            begin = self.clock()
            iterator = iter(loader)
            next(iterator)
            taken_s = self.clock() - begin
        if not loader.persistent_workers:
            shut_down(iterator, loader)
        return taken_s


class _Endless(Sampler[int]):
    """All indices in random order, again and again; each loader continues where the one before stopped."""

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
def unwarned() -> Iterator[None]:
    """Silence torch's warning about more workers than cores: trying them is the point."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
        yield


def is_iterable(dataset: Any) -> bool:
    """Whether the dataset determines the order of its samples itself."""
    return isinstance(dataset, IterableDataset)


def _copied(part: Any, device: str) -> Any:
    return part.to(device, non_blocking=True) if isinstance(part, torch.Tensor) else part


def _checked(dataset: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    unknown = set(options) - _PASSED_ON
    if unknown:
        raise UsageError(
            f"unknown option {', '.join(sorted(unknown))}; the loaders accept {', '.join(sorted(_PASSED_ON))}"
        )
    if isinstance(dataset, DataLoader):
        raise UsageError("pass the dataset, as in find_num_workers(loader.dataset), not the DataLoader")
    if not is_iterable(dataset):
        try:
            empty = len(dataset) == 0
        except TypeError:
            raise UsageError(
                f"{dataset!r} is not a dataset: it has no len() and is not an IterableDataset"
            ) from None
        if empty:
            raise UsageError("the dataset is empty: nothing to measure")
    return dict(options)


_OBVIOUS = 2.0
"""A ratio that needs no second round."""


def ratio(one: Tried, other: Tried) -> float:
    """How many times as fast as the other: the median over the rounds that both have."""
    return median(_ratios(one, other))


def beats(one: Tried, other: Tried) -> bool:
    """Whether it is faster in every round, and worth it; with a single round, whether it is twice as fast."""
    ratios = _ratios(one, other)
    return median(ratios) > (WORTH_IT if len(ratios) > 1 else _OBVIOUS) and min(ratios) > 1


def fastest(tried: Sequence[Tried]) -> Tried:
    """The setting with the highest median rate."""
    return max(tried, key=lambda one: one.rate)


def fewest_of_the_fastest(tried: Sequence[Tried]) -> Tried:
    """The first in the given order that no other beats."""
    return next(one for one in tried if not any(beats(other, one) for other in tried))


def _ratios(one: Tried, other: Tried) -> list[float]:
    return [a / b for a, b in zip(one.rates, other.rates, strict=False)]


def are_compared(tried: Sequence[Tried]) -> bool:
    """Whether two or more settings were measured often enough to tell a small difference from noise."""
    return len(tried) > 1 and all(len(one.rates) > 1 for one in (tried[0], fastest(tried)))
