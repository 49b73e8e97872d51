"""What `unstarve bench` understands."""

from __future__ import annotations

import pytest

from unstarve.benchmark.bench_plan import QUICK, BenchPlan, Sizes
from unstarve.cli.bench import _plan
from unstarve.errors import UsageError


def plan_of(
    part: list[str] | None = None,
    seeds: str | None = None,
    size: str | None = None,
    *,
    multi: bool = False,
    quick: bool = False,
    batch: int | None = None,
) -> BenchPlan:
    return _plan(part, multi, seeds, batch, size, quick, None)


def test_without_options_the_sizes_are_those_of_the_bars() -> None:
    plan = plan_of()
    assert (plan.sizes, plan.seeds, plan.judged, plan.memory) == (Sizes(), (0, 0, 0), True, True)


def test_options_change_the_plan() -> None:
    plan = plan_of(["a,b", "prefetch"], "3", "5000,70", batch=128)
    assert plan.parts == ("a", "b", "prefetch")
    assert plan.seeds == (0, 1, 2)
    sizes = plan.sizes
    assert (sizes.rows, sizes.columns, sizes.row_batch, sizes.image_batch) == (5000, 70, 128, 128)
    assert not plan.judged
    assert plan_of(multi=True).seeds == (0, 1, 2, 3, 4)
    assert plan_of(seeds="1,7,42", multi=True).seeds == (1, 7, 42)
    assert (plan_of(quick=True).sizes, plan_of(quick=True).memory) == (QUICK, False)


@pytest.mark.parametrize("text", ["", "0", "-1", "a,b", "1,-2"])
def test_seeds_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--seeds must be"):
        plan_of(seeds=text)


@pytest.mark.parametrize("text", ["", "5", "0,10", "a,b", "1,2,3"])
def test_sizes_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--dataset-size must be"):
        plan_of(size=text)
