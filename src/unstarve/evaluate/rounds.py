"""Measure several settings in turns, so that what disturbs the machine disturbs all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

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
        for setting in left if number % 2 == 0 else left[::-1]:
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
