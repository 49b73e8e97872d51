"""Processes that wait for a core are found, each with its reason."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fake_health import epochs_run, found, ids, spent, with_advice
from unstarve.model import Cause, Crew, Process, Run

RUN = epochs_run(epochs=1, start_s=0)


def crowded(share: float = 0.4, **facts: Any) -> Any:
    return spent(Cause.CONTENTION, share, advice=False, **{"workers": 4, "cpu_s": 0.05, **facts})


def test_more_workers_than_cores() -> None:
    (one,) = found(RUN, with_advice(crowded(), "fewer-workers", num_workers=2))
    assert one.id == "more-workers-than-cores"
    assert "4 workers share 2 cores with training, which waits for a core 40%" in one.message
    assert one.fix == "Pass num_workers=2 to loader."
    assert ids(RUN, crowded()) == [], "fewer workers would not be faster"
    assert ids(RUN, with_advice(crowded(0.03), "fewer-workers", num_workers=2)) == []


def test_threads_per_worker() -> None:
    d = spent(Cause.CONTENTION, 0.4, workers=2, cpu_s=0.01, helped_s=0.03)
    (one,) = found(RUN, d)
    assert one.id == "threads-per-worker"
    assert "Other threads do 75% of the computing in 2 workers" in one.message
    assert "OPENCV_FOR_THREADS_NUM=1" in one.fix
    assert ids(RUN, spent(Cause.CONTENTION, 0.4, workers=2, cpu_s=0.04)) == []


def usage(periods: int, throttled: int) -> dict[str, int]:
    return {"at_ns": 0, "periods": periods, "throttled": throttled}


def test_a_quota_that_stops_the_processes() -> None:
    system = {"quota_cores": 2.0, "usage_before": usage(100, 50), "usage": usage(600, 400)}
    (one,) = found(RUN, crowded(system=system))
    assert one.id == "throttled"
    assert "The quota of 2 cores was used up in 70% of its periods" in one.message
    assert "at most 2 workers" in one.fix


@pytest.mark.parametrize(
    "system",
    [
        {"quota_cores": 2.0, "usage_before": usage(100, 50), "usage": usage(600, 51)},
        {"quota_cores": None, "usage_before": usage(100, 50), "usage": usage(600, 400)},
        {"quota_cores": 2.0, "usage_before": {"at_ns": 0}, "usage": {"at_ns": 9}},
        {"quota_cores": 2.0},
    ],
    ids=["long before the run", "no quota", "not counted", "an old run"],
)
def test_a_quota_that_suffices_is_healthy(system: dict[str, Any]) -> None:
    assert ids(RUN, crowded(system=system)) == []


def on_cores(*affinities: list[int], first: int | None = 8) -> Run:
    """A run whose workers may use these cores."""
    main = dataclasses.replace(
        RUN.processes[0],
        crews=(Crew(0, 0, tuple(range(200, 200 + len(affinities)))),),
        system={"first_cores": first},
    )
    crew = [
        dataclasses.replace(main, pid=200 + n, worker=True, batches=(), epochs=(), system={"affinity": cores})
        for n, cores in enumerate(affinities)
    ]
    processes: tuple[Process, ...] = (main, *crew)
    return dataclasses.replace(RUN, processes=processes)


def test_workers_on_few_cores() -> None:
    (one,) = found(on_cores(*[[3]] * 4), crowded())
    assert one.id == "worker-affinity"
    assert "4 workers may use 1 core; the training process started with 8" in one.message
    assert "os.sched_setaffinity" in one.fix


@pytest.mark.parametrize(
    "run",
    [on_cores([0], [1], [2], [3]), on_cores(*[[3]] * 4, first=1), on_cores(*[[3]] * 4, first=None), RUN],
    ids=["a core each", "started on one core", "unknown", "an old run"],
)
def test_workers_with_their_cores_are_healthy(run: Run) -> None:
    assert ids(run, crowded()) == []


def test_few_cores_that_nobody_waits_for_are_healthy() -> None:
    assert ids(on_cores(*[[3]] * 4), crowded(0.02)) == []
