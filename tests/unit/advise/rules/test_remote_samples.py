"""Samples that take time to arrive are fetched by threads."""

from __future__ import annotations

from typing import Any

import pytest

from fake_forecaster import with_forecaster
from fakes import diagnosis_of
from unstarve.advise.all_rules import advise
from unstarve.model import Advice, Cause, Diagnosis

SOURCE = "DataLoader(train_set, batch_size=8)"


def diagnosis(cause: Cause = Cause.REMOTE, **given: Any) -> Diagnosis:
    wanted: dict[str, Any] = {"workers": 0, "remote_s": 0.1, "cpu_s": 0.001, "step_s": 0.12, "source": SOURCE}
    return diagnosis_of(cause, **(wanted | {"dataset": {"module": "data", "length": 100}} | given))


def advised(d: Diagnosis) -> dict[str, Advice]:
    return {one.id: one for one in advise(with_forecaster(d))[0]}


def test_as_many_threads_as_hide_the_waiting_behind_the_step() -> None:
    one = advised(diagnosis())["fetch-ahead"]
    assert one.change == {}
    assert "unstarve.AsyncPrefetchDataset(train_set, num_workers=7)" in one.code
    assert "thread-safe" in one.note
    assert one.speedup is not None
    assert one.speedup.predicted > 2


def test_workers_share_the_waiting() -> None:
    one = advised(diagnosis(workers=2, free_s=0.01))["fetch-ahead"]
    assert "num_workers=7)" in one.code


@pytest.mark.parametrize(("facts", "said"), [({"draws": False}, False), ({"draws": True}, True), ({}, True)])
def test_the_order_of_random_draws_is_said_to_change(facts: dict[str, bool], said: bool) -> None:
    one = advised(diagnosis(dataset={"module": "data", "length": 100, **facts}))["fetch-ahead"]
    assert ("Random numbers" in one.note) is said


@pytest.mark.parametrize(
    "given",
    [
        {"remote_s": 0.01, "cpu_s": 0.1},
        {"cause": Cause.CPU, "remote_s": 0.0, "cpu_s": 0.1},
        {"dataset": {"module": "data", "length": 100, "iterable": True}},
        {"dataset": {"module": "unstarve.fixes.datasets.prefetch.prefetch_dataset", "length": 100}},
        {"dataset": {}},
    ],
)
def test_it_is_silent_where_threads_would_not_help(given: dict[str, Any]) -> None:
    assert "fetch-ahead" not in advised(diagnosis(**given))


def test_threads_are_an_alternative_to_more_workers() -> None:
    found = advised(diagnosis(step_s=1.2, remote_s=1.0, free_s=0.002))
    assert {"fetch-ahead", "more-workers"} <= set(found)
    assert not any("fetch-ahead" in one.parts for one in found.values())


STREAM = {"config": {"sampler": "_InfiniteConstantSampler"}, "dataset": {"module": "data", "iterable": True}}


def test_a_stream_is_read_while_the_step_runs() -> None:
    one = advised(diagnosis(remote_s=0.05, step_s=0.1, free_s=0.05, **STREAM))["read-ahead"]
    assert "unstarve.AsyncPrefetchDataset(train_set, queue_size=16)" in one.code
    assert one.speedup is not None
    assert one.speedup.predicted > 1.5


@pytest.mark.parametrize(
    "given",
    [
        {"workers": 1},
        {"config": {}},
        {"remote_s": 0.01, "cpu_s": 0.1},
        {"dataset": {"module": "unstarve.fixes.datasets.prefetch.prefetch_dataset", "iterable": True}},
    ],
)
def test_other_streams_are_left_alone(given: dict[str, Any]) -> None:
    assert "read-ahead" not in advised(diagnosis(**(STREAM | given)))


SHARDED = {"sampler": "_InfiniteConstantSampler", "num_workers": 0, "batch_size": 8}


@pytest.mark.parametrize(
    ("shards", "until"), [(1, "Until then, use 1 worker."), (2, "Until then, use 2 workers.")]
)
def test_a_stream_with_few_shards_needs_more_of_them_before_workers_help(shards: int, until: str) -> None:
    facts = {"module": "webdataset.compat", "iterable": True, "shards": shards}
    found = advised(diagnosis(step_s=0.11, free_s=0.02, config=SHARDED, dataset=facts))
    one = found["more-shards"]
    assert f"multiple of {one.change['num_workers']} shards" in one.code
    assert one.note == until
    assert "more-workers" not in found


def test_a_stream_with_shards_enough_only_needs_workers() -> None:
    facts = {"module": "webdataset.compat", "iterable": True, "shards": 64}
    found = advised(diagnosis(step_s=0.11, free_s=0.02, config=SHARDED, dataset=facts))
    assert "more-workers" in found
    assert "more-shards" not in found


def test_a_stream_that_resumes_is_not_read_ahead_of_its_place() -> None:
    stream: dict[str, Any] = {
        "dataset": {"module": "data", "iterable": True},
        "config": {"sampler": "_InfiniteConstantSampler"},
    }
    assert "read-ahead" in advised(diagnosis(**stream))
    stream["config"] |= {"resumes": True}
    rejected = {one.id: one.why for one in advise(with_forecaster(diagnosis(**stream)))[1]}
    assert "state_dict" in rejected["read-ahead"]


def test_workers_of_a_library_share_out_its_shards() -> None:
    given: dict[str, Any] = {"config": {"sampler": "_InfiniteConstantSampler"}}
    own = advised(diagnosis(dataset={"module": "data", "iterable": True}, **given))["more-workers"]
    assert "get_worker_info()" in own.why
    facts = {"module": "litdata", "iterable": True, "library": "litdata"}
    assert "its own shards" in advised(diagnosis(dataset=facts, **given))["more-workers"].why
