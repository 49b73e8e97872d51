"""The quick cases of the zoo of planted bottlenecks, through the public command line.

A verdict is about a machine, too: what is on a CPU becomes contention where others take the cores. So a wrong
one is given other tries, and counts only where the machine was left to the case.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from accuracy import Outcome, play
from zoo import CASES
from zoo.case import Case

MOST_RUNS = 4
BUSY_CORES = 0.2
BUSY_PRESSURE = 0.2
LONGEST_AGAIN_S = 40
"""For all cases together: on a machine that stays busy, trying again is in vain."""

pytestmark = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="what others do cannot be told here")


class Patience:
    """How long the cases of this process may still be tried again beside others' work."""

    def __init__(self, seconds: float) -> None:
        self._left_s = seconds

    def runs(self, case: Case) -> list[Outcome]:
        """Runs of a case up to the first one that is right."""
        outcomes = [play(case)]
        while not right(outcomes[-1]) and len(outcomes) < MOST_RUNS:
            if busy(outcomes[-1]) and self._left_s <= 0:
                break
            begin = time.monotonic()
            outcomes.append(play(case))
            self._left_s -= time.monotonic() - begin
        return outcomes


@pytest.fixture(scope="module")
def patience() -> Patience:
    return Patience(LONGEST_AGAIN_S)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES if case.quick])
def test_a_planted_bottleneck_is_named(case: Case, patience: Patience) -> None:
    why_not = case.why_not()
    if why_not:
        pytest.skip(why_not)
    outcomes = patience.runs(case)
    if right(outcomes[-1]):
        return
    told = "; ".join(tell(outcome) for outcome in outcomes)
    if any(busy(outcome) for outcome in outcomes):
        pytest.skip(f"the machine was too busy to judge: {told}")
    pytest.fail(f"the truth is {case.state} {case.cause}: {told}")


def right(outcome: Outcome) -> bool:
    return outcome.state_ok and outcome.cause_ok


def busy(outcome: Outcome) -> bool:
    """Whether others used the machine, or the case did not find the cores that it needs."""
    crowded = outcome.true_cause != "contention" and outcome.pressure > BUSY_PRESSURE
    return crowded or outcome.neighbours > BUSY_CORES


def tell(outcome: Outcome) -> str:
    return (
        f"{outcome.state} {outcome.cause} beside {outcome.neighbours:.1f} cores of others, "
        f"{outcome.pressure:.0%} of the time short of a core ({'; '.join(outcome.evidence)})"
    )
