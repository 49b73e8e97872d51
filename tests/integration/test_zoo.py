"""The quick cases of the zoo of planted bottlenecks, through the public command line.

A verdict depends on the machine: CPU work becomes contention where others take the cores. So a wrong verdict
gets further tries and counts only if nobody else used the machine. The test has the machine to itself as far
as the test suite goes, so most cases can be judged; it fails if fewer than half can.
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
LONGEST_S = 270
"""For all cases together; cases that are still to be played then are not judged."""
LONGEST_AGAIN_S = 60
"""For repeating disturbed runs: on a machine that stays busy, that is in vain."""


class Zoo:
    """Plays cases within a time budget and keeps count."""

    def __init__(self) -> None:
        self._begin_s = time.monotonic()
        self._again_s = 0.0
        self.judged: list[str] = []
        self.not_judged: dict[str, str] = {}

    def judge(self, case: Case) -> None:
        """Fail if the verdict is wrong although nobody else used the machine; skip if it cannot be judged."""
        reason = case.why_not() or ("no time left" if self._spent_s() > LONGEST_S else None)
        outcomes = [] if reason else self._runs(case)
        if outcomes and not right(outcomes[-1]) and any(map(busy, outcomes)):
            reason = f"the machine was too busy: {'; '.join(map(tell, outcomes))}"
        if reason:
            self.not_judged[case.name] = reason
            pytest.skip(reason)
        self.judged.append(case.name)
        if not right(outcomes[-1]):
            pytest.fail(f"the truth is {case.state} {case.cause}: {'; '.join(map(tell, outcomes))}")

    def _runs(self, case: Case) -> list[Outcome]:
        """Runs of a case up to the first one that is right."""
        outcomes = [play(case)]
        while not right(outcomes[-1]) and len(outcomes) < MOST_RUNS and self._spent_s() < LONGEST_S:
            if busy(outcomes[-1]) and self._again_s > LONGEST_AGAIN_S:
                break
            begin_s = time.monotonic()
            outcomes.append(play(case))
            self._again_s += time.monotonic() - begin_s
        return outcomes

    def _spent_s(self) -> float:
        return time.monotonic() - self._begin_s


@pytest.mark.whole_machine
@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="cannot see here what others do to the machine")
def test_planted_bottlenecks_are_named(subtests: pytest.Subtests) -> None:
    zoo, quick = Zoo(), [case for case in CASES if case.quick]
    for case in quick:
        with subtests.test(case.name):
            zoo.judge(case)
    told = "\n".join(f"{name}: {why}" for name, why in zoo.not_judged.items())
    assert len(zoo.judged) * 2 >= len(quick), f"only {len(zoo.judged)} of {len(quick)} judged\n{told}"


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
