"""Ranks, workers and epochs that do not get their batches."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fake_work import work_of
from fakes import FakeTraining, run_of
from unstarve import api
from unstarve.model import Crew, Diagnosis, Loader, Process, Run


def rank(number: int | None, batches: int, *, ended: bool = True, **config: Any) -> Process:
    training = FakeTraining(rank=number)
    training.begin("train")
    for _ in range(batches):
        training.take(0.0005, "train")
        training.backward()
        training.spend(0.02)
    if ended:
        training.end("train")
    loaders = (Loader(0, "train", "train.py:3", "DataLoader", config),)
    return dataclasses.replace(training.process(), loaders=loaders)


def health(run: Run) -> list[str]:
    return [one.id for one in diagnosed(run).health]


def diagnosed(run: Run) -> Diagnosis:
    return api.diagnose(run)


def test_ranks_with_different_numbers_of_batches() -> None:
    (one,) = diagnosed(run_of(rank(0, 40), rank(1, 38))).health
    assert (one.id, one.severity, one.where) == ("uneven-ranks", "error", "train.py:3")
    assert one.message == "In epoch 0 of train, rank 1 had 38 batches and rank 0 40."


def test_a_rank_that_hangs_after_another_has_ended() -> None:
    assert health(run_of(rank(0, 40, ended=False), rank(1, 38))) == ["uneven-ranks"]


@pytest.mark.parametrize(
    "ranks",
    [[rank(0, 40), rank(1, 40)], [rank(0, 40), rank(1, 38, ended=False)], [rank(None, 40)]],
    ids=["even", "one stopped early", "no ranks"],
)
def test_even_ranks_are_healthy(ranks: list[Process]) -> None:
    assert health(run_of(*ranks)) == []


def stream(*made: int, iterable: bool = True, ended: bool = True, **facts: int) -> Run:
    """A run whose workers made so many batches; each ends with a fetch that finds the stream exhausted."""
    main = rank(None, sum(made), ended=ended, num_workers=len(made))
    pids = tuple(range(200, 200 + len(made)))
    loaders = tuple(dataclasses.replace(one, dataset={"iterable": iterable, **facts}) for one in main.loaders)
    crew = [
        dataclasses.replace(
            main,
            pid=pid,
            worker=True,
            batches=(),
            epochs=(),
            works=tuple(work_of(n, n * 30, cpu_ms=1, failed=n == count) for n in range(count + 1)),
        )
        for pid, count in zip(pids, made, strict=True)
    ]
    return run_of(dataclasses.replace(main, loaders=loaders, crews=(Crew(0, 0, pids),)), *crew)


def test_workers_without_a_shard() -> None:
    (one,) = diagnosed(stream(20, 20, 0, 0)).health
    assert one.id == "fewer-shards-than-workers"
    assert one.message == "2 of 4 workers of train had no sample in a whole epoch."
    assert "num_workers=2" in one.fix


def test_fewer_shards_are_known_before_an_epoch_has_ended() -> None:
    (one,) = diagnosed(stream(20, 20, 0, 0, ended=False, shards=2)).health
    assert one.message == "The stream of train has 2 shards for 4 workers."
    assert "num_workers=2" in one.fix


@pytest.mark.parametrize(
    "run",
    [
        stream(20, 20, 1),
        stream(20, 20, 0, iterable=False),
        stream(20, 20, 0, ended=False),
        stream(1, 0),
        stream(20, 20, shards=2),
    ],
    ids=["all have one", "not a stream", "stopped early", "hardly any sample", "as many shards"],
)
def test_streams_with_enough_shards_are_healthy(run: Run) -> None:
    assert health(run) == []


def test_a_last_batch_that_is_dropped() -> None:
    config = {"drop_last": True, "batch_size": 8, "dataset_len": 30 * 8 + 7, "sampler": "RandomSampler"}
    assert health(run_of(rank(None, 30, **config))) == [], "2.8% of the samples"
    config["dataset_len"] = 23
    (one,) = diagnosed(run_of(rank(None, 2, **config))).health
    assert one.id == "drop-last-loses"
    assert "train drops 7 of 23 samples in every epoch (30%)" in one.message
    assert health(run_of(rank(None, 2, **{**config, "drop_last": False}))) == []
    assert health(run_of(rank(None, 1, **config))) == [], "fewer batches than that: another sampler"
