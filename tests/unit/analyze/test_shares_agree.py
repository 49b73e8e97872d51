"""Shares of functions and shares of stages: the same base, so they add up."""

from __future__ import annotations

import dataclasses

import pytest

from fakes import FakeTraining, run_of
from unstarve.analyze.diagnose import analyze_run
from unstarve.model import Cause, Diagnosis, Sampled


def diagnosis(*sampled: Sampled) -> Diagnosis:
    training = FakeTraining()
    training.epoch([(0.01, 0.1)] * 50)
    return analyze_run(run_of(dataclasses.replace(training.process(), sampled=sampled)))


def found(function: str, place: str, seconds: float, *, on_cpu: bool = True, torch: bool = False) -> Sampled:
    return Sampled(place, function, "train.py", 1, on_cpu, torch, seconds)


def test_functions_of_the_loop_add_up_to_the_hosts_part_of_the_steps() -> None:
    d = diagnosis(
        found("log", "step", 1.0), found("plot", "step", 0.5), found("conv", "step", 3.5, torch=True)
    )
    budget = {share.cause: share.seconds for share in d.budget}
    own = sum(cost.share for cost in d.functions if cost.where is Cause.HOST)
    assert own == pytest.approx(0.3)
    assert budget[Cause.HOST] / (budget[Cause.HOST] + budget[Cause.COMPUTE]) == pytest.approx(own)


def test_functions_of_fetching_add_up_to_all_of_it() -> None:
    d = diagnosis(
        found("decode", "fetch", 3.0),
        found("read", "fetch", 1.0, on_cpu=False),
        found("stack", "collate", 2.0),
    )
    shares = {cost.name: cost.share for cost in d.functions}
    assert shares == pytest.approx({"decode": 0.75, "read": 0.25, "stack": 1.0})
