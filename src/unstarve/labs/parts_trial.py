"""Whether each workload of the lab on faster parts got faster and delivers what it did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unstarve.labs.harness_process import told_by
from unstarve.labs.started import started_in
from unstarve.labs.turns import Results, does_less_work, run_in_turns, speedup

_HARNESS = "unstarve.labs.parts_harness"
_ENOUGH_S = 100
"""How long all comparisons may take together."""


def trial_of(folder: Path, goals: dict[str, float]) -> tuple[bool, tuple[str, ...]]:
    """Run both versions in turns on each workload; `goals` has the speed-up to reach, by slot."""
    started = started_in(folder)
    lab = started.lab
    assert lab.edited is not None
    lines: list[str] = []
    passed = True
    with started.original() as original:
        for slot, goal in goals.items():
            told = _measured((original / lab.slow, folder / lab.edited), slot, goal, _ENOUGH_S / len(goals))
            if isinstance(told, str):
                lines.append(f"{slot}: {told}")
                passed = False
                continue
            gain, missing = judged(*told, goal)
            lines.append(f"{slot}: {gain}")
            lines += [f"{slot}: {sentence}" for sentence in missing]
            passed = passed and not missing
    return passed, tuple(lines)


def judged(slow: Results, fast: Results, goal: float) -> tuple[str, list[str]]:
    """The gain in a sentence, and what is missing, a sentence each."""
    found = speedup(slow, fast)
    missing = list(_differences(slow, fast))
    if not missing and (short := found.missing(goal)):
        missing.append(short)
    return f"Training is {found} as fast.", missing


def _differences(slow: Results, fast: Results) -> Iterator[str]:
    first = slow[0]
    epochs = len(first["digests"])
    if any(one["steps"] != first["steps"] for one in fast):
        yield "But it trains in a different number of steps: keep the batch size."
    elif does_less_work(slow, fast):
        yield "But its training step does less work."
    if all(one["digests"] == first["digests"] for one in fast):
        return
    if len(set(first["digests"])) == epochs > 1 and any(len(set(one["digests"])) == 1 for one in fast):
        yield (
            f"But the {epochs} epochs, which should all differ, have the same samples: the random part "
            "is frozen in the cache."
        )
    else:
        yield "But it does not deliver the same samples as the slow one."


def _measured(
    versions: tuple[Path, Path], slot: str, goal: float, enough_s: float
) -> tuple[Results, Results] | str:
    """What both versions did, in as many rounds as it takes; or why there is nothing."""

    def run(file: Path, step_rounds: int | None) -> dict[str, Any] | str:
        return told_by(_HARNESS, file, slot, step_rounds)

    def is_open(slow: Results, fast: Results) -> bool:
        return speedup(slow, fast).is_open(goal) and not list(_differences(slow, fast))

    return run_in_turns(versions, run, is_open, enough_s)
