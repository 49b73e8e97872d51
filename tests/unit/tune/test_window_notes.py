"""What is said beside a result, from windows as they are measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unstarve.model import LoaderSettings
from unstarve.tune.bounds import WorkerLimits
from unstarve.tune.cpu_clock import CpuTime
from unstarve.tune.step_window import Block, StepWindow
from unstarve.tune.window_forecast import BatchFacts
from unstarve.tune.window_notes import busy_note, copy_note

CPU = CpuTime(0.03, 0.0)
LIMITS = WorkerLimits(4, 16)
FACTS = BatchFacts(nbytes=200_000_000, copied=True)


def window(period_s: float = 0.1, steps: int = 10, foreign_cores: float | None = None) -> StepWindow:
    cpu = replace(CPU, foreign_cores=foreign_cores)
    return StepWindow(LoaderSettings(2, 2), (Block(steps, steps * period_s),), 0.05, cpu)


def test_other_processes_are_named_by_what_they_used_while_settings_were_measured() -> None:
    windows = [window(foreign_cores=3.0, steps=20), window(foreign_cores=0.0), window()]
    said = busy_note(windows, LIMITS)
    assert said is not None
    assert said.startswith("other processes used 2.0 of 4 cores meanwhile")
    assert busy_note([window(foreign_cores=0.3)], LIMITS) is None
    assert busy_note([window()], LIMITS) is None
    assert busy_note([], LIMITS) is None


@pytest.mark.parametrize(
    ("facts", "period_s", "share"),
    [
        (FACTS, 0.1, "10%"),
        (replace(FACTS, pinned=True), 0.05, "6.6%"),
        (replace(FACTS, pinned=True), 0.1, None),
        (replace(FACTS, copied=False), 0.1, None),
        (FACTS, 1.0, None),
    ],
)
def test_copies_are_named_where_they_may_take_a_part_of_a_step(
    facts: BatchFacts, period_s: float, share: str | None
) -> None:
    said = copy_note([window(1.0), window(period_s)], facts)
    assert said is None if share is None else f"may take {share} of a step" in str(said)
