"""Runs the lab's version and the learner's in turns, until it is clear whether a goal is reached.

A busy machine needs more rounds than a quiet one. The interval holds however often one looks at it, so no
version passes because it was measured until it did.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unstarve.intervals import anytime_half_width, turn_order
from unstarve.words import times, times_interval

_MOST_ROUNDS = 40
_SAME = 0.1
"""A change of speed up to this is none, where that is the question."""
ANSWERS = ("faster", "slower", "same")
_LEAST_WORK = 0.4
"""Share of the CPU time of a step that it may take in another process: cores differ, and workers compete."""

Results = list[dict[str, Any]]
"""What a harness told about one version, a round each."""


@dataclass(frozen=True, slots=True)
class Speedup:
    """How many times as fast the learner's version is."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return times_interval(self.mean, self.low, self.high, 2) if self.low else times(self.mean, 2)

    def is_open(self, goal: float) -> bool:
        """Whether more rounds are needed to say on which side of the goal it is."""
        return self.low < goal <= self.high

    def missing(self, goal: float) -> str | None:
        """Why the goal is not reached, in a sentence; None if it is."""
        if self.low >= goal:
            return None
        if self.is_open(goal):
            return (
                f"Too noisy to tell whether that reaches the goal of {times(goal, 1)}: close other programs, "
                "and check again."
            )
        return f"Not fast enough: the goal is {times(goal, 1)}, and the whole interval lies below it."


def speedup(
    slow: Sequence[dict[str, Any]],
    fast: Sequence[dict[str, Any]],
    half_width: Callable[[Sequence[float]], float] = anytime_half_width,
) -> Speedup:
    """Compare the seconds of every round."""
    logs = [math.log(a["seconds"] / b["seconds"]) for a, b in zip(slow, fast, strict=True)]
    mean, around = statistics.mean(logs), half_width(logs)
    return Speedup(math.exp(mean), math.exp(mean - around), math.exp(mean + around))


def contradicts(answer: str, low: float, high: float) -> bool:
    """Whether a speed-up in this interval is not ``faster``, ``slower`` or the ``same`` (up to 10 %)."""
    return not {
        "faster": high > 1 + _SAME / 2,
        "slower": low < 1 - _SAME / 2,
        "same": low < 1 + _SAME and high > 1 - _SAME,
    }[answer]


def does_less_work(slow: Results, fast: Results) -> bool:
    """Whether the step of the fast version was made cheaper: the same work takes the same CPU time."""
    of_slow, of_fast = (statistics.median(one["step_cpu_s"] for one in results) for results in (slow, fast))
    return bool(of_fast < _LEAST_WORK * of_slow)


def run_in_turns(
    versions: tuple[Path, Path],
    run: Callable[[Path, int | None], dict[str, Any] | str],
    is_open: Callable[[Results, Results], bool],
    enough_s: float,
) -> tuple[Results, Results] | str:
    """Run the slow and the fast version while it `is_open` who wins; instead of results, why there are none.

    `run` also gets the work of a training step, so that it is the same in every run; None in the first, which
    tells it. No round begins that would not be over after `enough_s`, but one there is.
    """
    began = time.monotonic()
    results: dict[Path, Results] = {version: [] for version in versions}
    longest_s, step_rounds = 0.0, None
    for number in range(_MOST_ROUNDS):
        at = time.monotonic()
        for version in turn_order(versions, number):
            told = run(version, step_rounds)
            if isinstance(told, str):
                return told
            step_rounds = told.get("step_rounds")
            results[version].append(told)
        slow, fast = results.values()
        longest_s = max(longest_s, time.monotonic() - at)
        if not is_open(slow, fast) or time.monotonic() + longest_s > began + enough_s:
            break
    return slow, fast
