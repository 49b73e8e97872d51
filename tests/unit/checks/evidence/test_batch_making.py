"""Troubles of making, sending and ordering batches are found where they cost time."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fake_health import epochs_run, found, ids, spent, with_advice
from fake_work import work_of
from fakes import copies_of, simple_run
from run_files import slow_loading_run
from unstarve import api
from unstarve.model import Cause, Rejected, Run, SlowSample

RUN = epochs_run(epochs=1, start_s=0)


def test_a_training_that_makes_its_own_batches() -> None:
    d = spent(Cause.CPU, 0.6, advice=False, workers=0, cpu_s=0.03)
    advised = with_advice(d, "use-workers", num_workers=4, persistent_workers=True)
    (one,) = found(RUN, advised)
    assert one.id == "no-workers"
    assert "making its batches takes 60% of the time" in one.message
    assert "30.0 ms each" in one.message
    assert one.fix == "Pass num_workers=4 and persistent_workers=True to loader."
    assert ids(RUN, d) == [], "nobody advises workers"
    better = dataclasses.replace(advised, advice=(*with_advice(d, "keep-in-memory").advice, *advised.advice))
    assert ids(RUN, better) == [], "another change gains more"
    fed = with_advice(spent(Cause.CPU, 0.02, advice=False, workers=0), "use-workers", num_workers=4)
    assert ids(RUN, fed) == []


def test_rows_in_memory_that_are_fetched_one_by_one() -> None:
    facts: dict[str, Any] = {
        "dataset": {"columns_in_memory": True, "module": "torch", "length": 900},
        "config": {"collate_fn": "default_collate", "batch_size": 8, "sampler": "RandomSampler"},
        "workers": 0,
        "cpu_s": 0.03,
    }
    (one,) = found(RUN, spent(Cause.CPU, 0.6, **facts))
    assert one.id == "no-getitems"
    assert "unstarve.DataLoader" in one.fix
    assert ids(RUN, spent(Cause.CPU, 0.6, **{**facts, "dataset": {}})) == []


def test_finished_batches_that_wait_for_a_late_one() -> None:
    (one,) = found(RUN, spent(Cause.ORDER, 0.3, tail=12.0))
    assert one.id == "order"
    assert "waits 30% of the time for a late batch" in one.message
    assert "12× the typical time" in one.message
    assert one.fix == "Pass in_order=False to loader."
    assert ids(RUN, spent(Cause.ORDER, 0.03, tail=12.0)) == []


def fetches(*slow_ms: float, epochs: int = 1, queued_ms: float = 0.0) -> Run:
    """A run of one process that fetched batches, with the slowest sample of each."""
    works = [
        work_of(
            n, n * 200, cpu_ms=10 + ms - queued_ms, queued_ms=queued_ms, slow_index=n, slow_ms=ms, loader=0
        )
        for _ in range(epochs)
        for n, ms in enumerate(slow_ms)
    ]
    return dataclasses.replace(RUN, processes=(dataclasses.replace(RUN.processes[0], works=tuple(works)),))


def test_a_sample_that_takes_much_of_the_fetching_time() -> None:
    run = fetches(1, 1, 1, 90, 1, 1, 1)
    d = dataclasses.replace(spent(Cause.CPU, 0.6), slow_samples=(SlowSample(3, 90.0, "data/huge.png"),))
    (one,) = found(run, d)
    assert one.id == "slow-sample"
    assert one.message == "One slow sample takes 58% of the fetching time; huge.png alone takes 90.0 ms."
    assert "huge.png" in one.fix


def test_a_sample_that_is_slow_in_every_epoch() -> None:
    d = dataclasses.replace(spent(Cause.CPU, 0.6, epochs=2), slow_samples=(SlowSample(3, 90.0),))
    assert ids(fetches(1, 1, 1, 90, 1, 1, 1, epochs=2), d) == ["slow-sample"]
    once = fetches(1, 1, 1, 90, 1, 1, 1)
    assert ids(once, d) == [], "it was slow by chance"


def test_a_sample_that_waited_for_a_core_is_not_slow() -> None:
    d = dataclasses.replace(spent(Cause.CPU, 0.6), slow_samples=(SlowSample(3, 90.0),))
    assert ids(fetches(1, 1, 1, 90, 1, 1, 1, queued_ms=85), d) == []


def test_the_first_fetch_of_a_process_is_always_slow() -> None:
    d = dataclasses.replace(spent(Cause.CPU, 0.6), slow_samples=(SlowSample(0, 90.0),))
    assert ids(fetches(90, 1, 1, 1, 1, 1, 1), d) == []


def test_a_slow_sample_that_hardly_counts_is_healthy() -> None:
    d = dataclasses.replace(spent(Cause.CPU, 0.6), slow_samples=(SlowSample(3, 6.0),))
    assert ids(fetches(1, 1, 1, 6, *[1] * 40), d) == []


def test_batches_of_many_small_tensors() -> None:
    d = spent(Cause.HANDOFF, 0.3, tensors=40, batch_bytes=80_000, handoff_s=0.02)
    (one,) = found(RUN, d)
    assert one.id == "many-tensors"
    assert "is 40 tensors of 2 KB each; handing it over takes 20.0 ms" in one.message
    assert "unstarve.DataLoader" in one.fix
    assert ids(RUN, spent(Cause.HANDOFF, 0.3, tensors=2, handoff_s=0.02)) == []
    assert ids(RUN, spent(Cause.HANDOFF, 0.02, tensors=40, handoff_s=0.02)) == []
    no_gain = dataclasses.replace(d, rejected=(Rejected("ring-engine", "it", "would not help"),))
    assert ids(RUN, no_gain) == []


def test_copies_from_pageable_memory() -> None:
    (one,) = found(RUN, spent(Cause.COPY, 0.3, copies=copies_of(0.3)))
    assert one.id == "not-pinned"
    assert one.fix == "Pass pin_memory=True to loader, and copy with .to(device, non_blocking=True)."
    assert ids(RUN, spent(Cause.COPY, 0.3, copies=copies_of(0.3), config={"pin_memory": True})) == []


def test_a_sampler_that_training_waits_for() -> None:
    config = {"sampler": "WeightedRandomSampler", "batch_sampler": "BatchSampler"}
    (one,) = found(RUN, spent(Cause.SAMPLER, 0.3, config=config, sampler_s=0.015))
    assert one.id == "slow-sampler"
    assert "WeightedRandomSampler takes 15.0 ms" in one.message
    assert ids(RUN, spent(Cause.SAMPLER, 0.03, config=config, sampler_s=0.001)) == []


@pytest.mark.parametrize(
    "run",
    [
        simple_run([(0.0005, 0.02)] * 60),
        simple_run([(0.00001, 0.00002)] * 60),
        slow_loading_run(load_ms=4, step_ms=20),
    ],
    ids=["fed", "empty steps", "fed by a worker"],
)
def test_a_training_that_does_not_wait_is_healthy(run: Run) -> None:
    assert api.diagnose(run).health == ()
