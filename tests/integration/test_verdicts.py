"""The verdict on planted bottlenecks: the quick half of the zoo, through the public command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from zoo import CASES
from zoo.case import Case

PLAY = Path(__file__).parents[2] / "bench" / "play.py"
QUICK = [pytest.param(case, id=case.name) for case in CASES if case.quick]


pytestmark = pytest.mark.alone

TRIES = 3
"""A neighbour that takes the cores for some seconds is a true cause too, but not the planted one."""


@pytest.mark.parametrize("case", QUICK)
def test_a_planted_bottleneck_is_named(project, case: Case) -> None:
    if why := case.why_not():
        pytest.skip(why)
    for _ in range(TRIES):
        verdict = project.record(PLAY, case.name)["verdict"]
        if (verdict["state"], verdict["cause"]) == (case.state, case.cause):
            return
    pytest.fail(f"called {verdict['state']} by {verdict['cause']}: {verdict['evidence']}")
