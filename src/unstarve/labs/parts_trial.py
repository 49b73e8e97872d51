"""Whether each workload of the lab on faster parts got faster and delivers what it did."""

from __future__ import annotations

import math
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unstarve.intervals import half_width, turn_order
from unstarve.labs.harness_process import told_by
from unstarve.labs.lab import Lab
from unstarve.labs.started import STATE
from unstarve.words import times, times_interval

_ROUNDS = 3
_MOST_ROUNDS = 5
_WIDEST = 2.0
"""The high end of an interval over its low end. More rounds are run while it is wider, on a machine that does
other things; the goal has no say in it, or else whoever comes near it would pass in the end."""
_HARNESS = "unstarve.labs.parts_harness"

Result = dict[str, Any]


def trial_of(lab: Lab, folder: Path, goals: dict[str, float]) -> tuple[bool, tuple[str, ...]]:
    """Run both versions in turns on each workload; `goals` has the speed-up to reach, by slot."""
    assert lab.edited is not None
    lines: list[str] = []
    passed = True
    with tempfile.TemporaryDirectory(prefix="unstarve-lab-") as temporary:
        for name in lab.files:
            shutil.copyfile(lab.folder / name, Path(temporary) / name)
        shutil.copyfile(folder / STATE, Path(temporary) / STATE)
        for slot, goal in goals.items():
            told = _measured(Path(temporary) / lab.slow, folder / lab.edited, slot)
            if isinstance(told, str):
                lines.append(f"{slot}: {told}")
                passed = False
                continue
            gain, missing = judged(*told, goal)
            lines.append(f"{slot}: {gain}")
            lines += [f"{slot}: {sentence}" for sentence in missing]
            passed = passed and not missing
    return passed, tuple(lines)


def judged(slow: list[Result], fast: list[Result], goal: float) -> tuple[str, list[str]]:
    """The gain in a sentence, and what is missing, a sentence each."""
    low, mean, high = gain_of(slow, fast)
    missing = list(_differences(slow[0], fast))
    if low < goal:
        missing.append(f"The goal is {times(goal, 1)}, and the whole interval has to lie above it.")
    return f"Training is {times_interval(mean, low, high, 2)} as fast.", missing


def gain_of(slow: list[Result], fast: list[Result]) -> tuple[float, float, float]:
    """How many times as fast: the interval's low end, the mean, and its high end."""
    logs = [math.log(a["seconds"] / b["seconds"]) for a, b in zip(slow, fast, strict=True)]
    mean, around = statistics.mean(logs), half_width(logs)
    return math.exp(mean - around), math.exp(mean), math.exp(mean + around)


def _differences(slow: Result, fast: list[Result]) -> Iterator[str]:
    epochs = len(slow["digests"])
    if any(one["steps"] != slow["steps"] for one in fast):
        yield "But it trains in another number of steps: keep the batch size."
    if all(one["digests"] == slow["digests"] for one in fast):
        return
    if len(set(slow["digests"])) == epochs > 1 and any(len(set(one["digests"])) == 1 for one in fast):
        yield (
            f"But the {epochs} epochs, which should all differ, have the same samples: the random part "
            "is frozen in the cache."
        )
    else:
        yield "But it does not deliver the same samples as the slow one."


def _measured(slow: Path, fast: Path, slot: str) -> tuple[list[Result], list[Result]] | str:
    """What both versions did, in as many rounds as it takes; or why there is nothing."""
    results: dict[Path, list[Result]] = {slow: [], fast: []}
    for number in range(_MOST_ROUNDS):
        for file in turn_order([slow, fast], number):
            told = told_by(_HARNESS, file, slot)
            if isinstance(told, str):
                return told
            results[file].append(told)
        if number + 1 >= _ROUNDS:
            low, _, high = gain_of(results[slow], results[fast])
            if high <= _WIDEST * low:
                break
    return results[slow], results[fast]
