"""Stack samples of all processes, put together, in agreement with the counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fake_work import work_of
from fakes import FakeTraining
from unstarve.analyze.function_costs import function_costs, transform_costs
from unstarve.model import Cause, Demand, FunctionCost, Process, Sampled, TransformTime, Work


def process(*found: Sampled, works: Sequence[Work] = ()) -> Process:
    return replace(FakeTraining().process(), sampled=found, works=tuple(works))


def demand_of_ms(fetch: float, cpu: float, disk: float = 0, remote: float = 0, queued: float = 0) -> Demand:
    parts = {"fetch_s": fetch, "cpu_s": cpu, "disk_s": disk, "remote_s": remote, "queued_s": queued}
    rest = {
        "samples": 8.0, "collate_s": 0.0, "handoff_s": 0.0, "pin_s": 0.0, "sampler_s": 0.0, "opens": 0.0,
    }  # fmt: skip
    seconds = {name: value / 1e3 for name, value in parts.items()}
    return Demand("train", 1, 100, storage_bytes=None, busy_share=None, tail=1.0, **seconds, **rest)


def sum_of(costs: Sequence[FunctionCost], where: Cause) -> float:
    return sum(cost.share for cost in costs if cost.where is where)


DECODE = Sampled("fetch", "decode", "data.py", 3, True, False, 6.0)
READ = Sampled("fetch", "read", "data.py", 9, False, False, 2.0)
STACK = Sampled("collate", "stack", "data.py", 20, True, False, 0.5)
FORWARD = Sampled("step", "forward", "linear.py", 1, True, True, 9.0)
LOG = Sampled("step", "log", "train.py", 5, True, False, 1.0)


def test_workers_are_summed_and_shares_are_of_their_stage() -> None:
    costs = function_costs([process(DECODE, READ), process(DECODE, STACK), process(FORWARD, LOG)], None)
    assert [(c.name, c.where) for c in costs] == [
        ("decode", Cause.CPU),
        ("read", Cause.REMOTE),
        ("log", Cause.HOST),
        ("stack", Cause.COLLATE),
    ]
    assert [c.seconds for c in costs] == pytest.approx([12.0, 2.0, 1.0, 0.5])
    assert [c.share for c in costs] == pytest.approx([12 / 14, 2 / 14, 0.1, 1.0])


def test_functions_share_what_the_counters_found() -> None:
    crop = DECODE._replace(function="crop", seconds=3.0)
    works = [work_of(task, 100.0 * task, cpu_ms=70, blocked_ms=30, collate_ms=10) for task in range(100)]
    demand = demand_of_ms(fetch=100, cpu=70, disk=30)
    costs = function_costs([process(DECODE, READ, crop, STACK, works=works)], demand)
    assert sum_of(costs, Cause.CPU) == pytest.approx(demand.cpu_s / demand.fetch_s)
    assert sum_of(costs, Cause.DISK) == pytest.approx(demand.disk_s / demand.fetch_s)
    told = {cost.name: (cost.share, cost.seconds) for cost in costs}
    assert told["decode"] == pytest.approx((0.7 * 6 / 9, 10.0 * 0.7 * 6 / 9))
    assert told["stack"] == pytest.approx((1.0, 1.0))


def test_time_in_line_for_a_core_is_nobodys() -> None:
    demand = demand_of_ms(fetch=100, cpu=40, queued=60)
    costs = function_costs([process(DECODE)], demand)
    assert sum_of(costs, Cause.CPU) == pytest.approx(0.4)


@pytest.mark.parametrize(("seen_on_cpu", "cpu"), [(False, 100), (False, 80), (True, 0), (True, 30)])
def test_the_counters_say_whether_a_fetch_computes(seen_on_cpu: bool, cpu: int) -> None:
    # For example, short fetches between long waits for indices: the sampler takes them for waiting.
    demand = demand_of_ms(fetch=100, cpu=cpu, remote=100 - cpu)
    costs = function_costs([process(DECODE._replace(on_cpu=seen_on_cpu))], demand)
    assert sum_of(costs, Cause.CPU) == pytest.approx(cpu / 100)
    assert sum_of(costs, Cause.REMOTE) == pytest.approx(1 - cpu / 100)


def test_the_sampler_says_which_function_waits() -> None:
    demand = demand_of_ms(fetch=100, cpu=60, remote=40)
    costs = function_costs([process(DECODE, READ)], demand)
    assert [(c.name, c.where) for c in costs] == [("decode", Cause.CPU), ("read", Cause.REMOTE)]
    assert [c.share for c in costs] == pytest.approx([0.6, 0.4])


def test_what_torch_computes_is_not_a_function_to_blame() -> None:
    assert function_costs([process(FORWARD)], None) == ()


def test_a_function_that_computes_and_waits_is_listed_for_both() -> None:
    costs = function_costs([process(DECODE, DECODE._replace(on_cpu=False, seconds=1.0))], None)
    assert [c.where for c in costs] == [Cause.CPU, Cause.REMOTE]
    assert [c.seconds for c in costs] == pytest.approx([6.0, 1.0])


def test_the_list_is_short() -> None:
    many = [DECODE._replace(function=f"f{number}", seconds=float(number)) for number in range(100)]
    costs = function_costs([process(*many)], None)
    assert costs[0].name == "f99"
    assert len(costs) <= 20


def test_nothing_sampled_names_nothing() -> None:
    assert function_costs([process()], None) == ()


def test_transforms_are_listed_apart_from_the_functions_they_call() -> None:
    works = [work_of(task, 100.0 * task, cpu_ms=100) for task in range(100)]
    one = replace(process(DECODE, works=works), transforms=(TransformTime("Crop", 4.0, 800),))
    (crop,) = transform_costs([one])
    assert (crop.name, crop.calls, crop.seconds) == ("Crop", 800, 4.0)
    assert crop.share == pytest.approx(0.4)
    assert [cost.name for cost in function_costs([one], demand_of_ms(fetch=100, cpu=100))] == ["decode"]


def test_transforms_without_a_fetch_are_not_of_a_loader() -> None:
    assert transform_costs([replace(process(), transforms=(TransformTime("Crop", 4.0, 800),))]) == ()
