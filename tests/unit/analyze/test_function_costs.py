"""Stack samples of all processes, put together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes import FakeTraining
from unstarve.analyze.batch_costs import function_costs
from unstarve.model import Cause, Process, Sampled


def process(*found: Sampled) -> Process:
    return replace(FakeTraining().process(), sampled=found)


DECODE = Sampled("fetch", "decode", "data.py", 3, True, False, 6.0)
READ = Sampled("fetch", "read", "data.py", 9, False, False, 2.0)
FORWARD = Sampled("step", "forward", "linear.py", 1, True, True, 9.0)
LOG = Sampled("step", "log", "train.py", 5, True, False, 1.0)


def test_workers_are_summed_and_shares_are_of_their_place() -> None:
    costs = function_costs([process(DECODE, READ), process(DECODE), process(FORWARD, LOG)], Cause.DISK)
    assert [(c.name, c.where, c.seconds) for c in costs] == [
        ("decode", Cause.CPU, 12.0),
        ("read", Cause.DISK, 2.0),
        ("log", Cause.HOST, 1.0),
    ]
    assert [c.share for c in costs] == pytest.approx([12 / 14, 2 / 14, 0.1])


def test_what_torch_computes_is_not_a_function_to_blame() -> None:
    assert function_costs([process(FORWARD)], Cause.REMOTE) == ()


def test_a_function_that_computes_and_waits_is_listed_for_both() -> None:
    waiting = DECODE._replace(on_cpu=False, seconds=1.0)
    costs = function_costs([process(DECODE, waiting)], Cause.REMOTE)
    assert [(c.where, c.seconds) for c in costs] == [(Cause.CPU, 6.0), (Cause.REMOTE, 1.0)]


def test_the_list_is_short() -> None:
    many = [DECODE._replace(function=f"f{number}", seconds=float(number)) for number in range(100)]
    costs = function_costs([process(*many)], Cause.REMOTE)
    assert costs[0].name == "f99"
    assert len(costs) <= 20


def test_nothing_sampled_names_nothing() -> None:
    assert function_costs([process()], Cause.REMOTE) == ()
