"""Samples that stay the same are kept in memory; rows that are there already need no worker."""

from __future__ import annotations

from typing import Any

import pytest

from fake_forecaster import with_forecaster
from fakes import diagnosis_of
from unstarve.advise.all_rules import advise
from unstarve.model import Advice, Cause, Diagnosis, Rejected

SAME = {"module": "data", "length": 1000, "draws": False}
CONFIG = {"collate_fn": "default_collate", "batch_size": 8, "sampler": "RandomSampler"}
SOURCE = "DataLoader(train_set, batch_size=bs)"
FREE = {"free_bytes": 10**9}
ROWS = {"module": "torch.utils.data.dataset", "length": 1000, "columns_in_memory": True}


def diagnosis(cause: Cause = Cause.CPU, **given: Any) -> Diagnosis:
    wanted: dict[str, Any] = {"workers": 2, "cpu_s": 0.2, "collate_s": 0.001, "handoff_s": 0.001}
    shared = {"dataset": SAME, "config": CONFIG, "source": SOURCE, "system": FREE}
    return diagnosis_of(cause, **(wanted | shared | given))


def found(d: Diagnosis) -> tuple[dict[str, Advice], dict[str, Rejected]]:
    advised, rejected = advise(with_forecaster(d))
    return {one.id: one for one in advised}, {one.id: one for one in rejected}


@pytest.mark.parametrize(
    ("cause", "cost"),
    [
        (Cause.CPU, {"cpu_s": 0.2}),
        (Cause.DISK, {"cpu_s": 0.0, "disk_s": 0.2}),
        (Cause.REMOTE, {"cpu_s": 0.0, "remote_s": 0.2}),
        (Cause.COLLATE, {"cpu_s": 0.05, "collate_s": 0.1}),
        (Cause.CONTENTION, {"cpu_s": 0.1, "queued_s": 0.2, "workers": 8}),
    ],
)
def test_samples_that_are_not_random_are_kept_in_memory(cause: Cause, cost: dict[str, float]) -> None:
    one = found(diagnosis(cause, **cost))[0]["keep-in-memory"]
    assert (
        one.code == "import unstarve\n\nunstarve.DataLoader(unstarve.CachedDataset(train_set), batch_size=bs)"
    )
    assert "Filling the cache takes about" in one.note
    assert one.speedup is not None
    assert one.speedup.predicted > 1.5


def test_a_cache_that_takes_long_to_fill_is_filled_by_the_first_epoch() -> None:
    one = found(diagnosis(dataset={**SAME, "length": 10_000}))[0]["keep-in-memory"]
    assert "unstarve.CachedDataset(train_set, fill='lazy')" in one.code
    assert "first epoch" in one.note


def test_batches_in_order_do_not_share_memory_with_the_cache() -> None:
    in_order = {**CONFIG, "sampler": "SequentialSampler"}
    assert found(diagnosis(config=in_order))[0]["keep-in-memory"].change == {"copy": True}
    assert found(diagnosis(config=in_order, dataset=ROWS))[0]["rows-in-memory"].change == {"copy": True}


@pytest.mark.parametrize("random", [{"draws": True}, {"keeps_state": True}])
def test_random_samples_are_not_frozen(random: dict[str, bool]) -> None:
    advised, rejected = found(diagnosis(dataset={**SAME, **random}))
    assert "keep-in-memory" not in advised
    assert "random" in rejected["keep-in-memory"].why


def test_a_dataset_larger_than_the_free_memory_is_not_cached() -> None:
    advised, rejected = found(diagnosis(system={"free_bytes": 200_000}))  # samples take 125,000 bytes
    assert "keep-in-memory" not in advised
    assert rejected["keep-in-memory"].why == "needs 125 KB, and 200 KB are free"


@pytest.mark.parametrize(
    "given",
    [
        {"dataset": {}},
        {"dataset": {"module": "data", "length": 1000}},  # nobody knows whether it is random
        {"dataset": {**SAME, "iterable": True}},
        {"dataset": {**SAME, "plain": True}},
        {"dataset": {"module": "data", "draws": False}},
        {"dataset": {**SAME, "module": "unstarve.fixes.datasets.cached.cached_dataset"}},
        {"batch_bytes": None},
        {"cause": Cause.STARTUP},
    ],
)
def test_nothing_is_said_of_a_cache_where_too_little_is_known(given: dict[str, Any]) -> None:
    advised, rejected = found(diagnosis(**given))
    assert "keep-in-memory" not in {*advised, *rejected}


def test_a_cache_replaces_the_advice_to_make_samples_cheaper() -> None:
    assert "cheaper-work" not in found(diagnosis())[0]
    assert "cheaper-work" in found(diagnosis(dataset={**SAME, "draws": True}))[0]


@pytest.mark.parametrize("cause", [Cause.CPU, Cause.COLLATE, Cause.HANDOFF])
def test_rows_in_memory_get_our_loader(cause: Cause) -> None:
    costs = {"cpu_s": 0.02, "collate_s": 0.02, "handoff_s": 0.02}
    one = found(diagnosis(cause, dataset=ROWS, **costs))[0]["rows-in-memory"]
    assert one.code == "import unstarve\n\nunstarve.DataLoader(train_set, batch_size=bs)"
    assert one.note == ""
    assert one.speedup is not None
    assert one.speedup.predicted > 1.2


@pytest.mark.parametrize(
    "config",
    [
        {**CONFIG, "engine": "gather"},
        {**CONFIG, "collate_fn": "pad"},
        {**CONFIG, "batch_size": None},
    ],
)
def test_rows_that_our_loader_could_not_gather_are_left_alone(config: dict[str, Any]) -> None:
    assert "rows-in-memory" not in found(diagnosis(dataset=ROWS, config=config))[0]
