"""What evaluators of this kind are known to get wrong, each as the claim that ours does not."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
import random
import warnings
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from sample_loaders import Stream, first_numbers, numbered, shared_memory_descriptors
from unstarve.errors import UsageError
from unstarve.evaluate.evaluator.loader_evaluator import LoaderEvaluator

# --- what replay reads and keeps ---


def test_replay_reads_only_as_many_batches_as_it_keeps() -> None:
    stream = Stream(None)
    LoaderEvaluator(DataLoader(stream, batch_size=4), mode="replay", num_cached_batches=3)
    assert stream.read == 12


def test_an_infinite_stream_can_be_replayed() -> None:
    evaluator = LoaderEvaluator(DataLoader(Stream(None), batch_size=4), mode="replay", num_cached_batches=2)
    assert [int(batch[0]) for batch in islice(evaluator, 5)] == [0, 4, 0, 4, 0]


def test_the_first_batches_are_kept_not_the_last() -> None:
    evaluator = LoaderEvaluator(numbered(), mode="replay", num_cached_batches=2)
    assert first_numbers(evaluator.cached_batches) == [0, 4]


def test_a_short_last_batch_is_not_replayed() -> None:
    loader = DataLoader(TensorDataset(torch.arange(10)), batch_size=4)
    evaluator = LoaderEvaluator(loader, mode="replay")
    assert [len(batch[0]) for batch in evaluator] == [4, 4, 4]


@pytest.mark.parametrize("persistent", [False, True])
def test_no_worker_is_left_after_caching(persistent: bool) -> None:
    before = multiprocessing.active_children()  # what other tests have left
    loader = numbered(num_workers=2, persistent_workers=persistent)
    evaluator = LoaderEvaluator(loader, mode="replay", num_cached_batches=2)
    assert set(multiprocessing.active_children()) <= set(before)
    assert len(first_numbers(evaluator)) == 6
    assert first_numbers(loader) == [0, 4, 8, 12, 16, 20]
    if persistent:
        loader._iterator._shutdown_workers()  # type: ignore[union-attr]  # it has one after an epoch


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_cached_batches_hold_no_descriptors() -> None:
    before = shared_memory_descriptors()
    loader = numbered(30, num_workers=2)
    evaluator = LoaderEvaluator(loader, mode="replay", num_cached_batches=25)
    assert len(evaluator.cached_batches) == 25
    assert shared_memory_descriptors() <= before


def test_changes_in_place_do_not_compound() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(8, 4096)), batch_size=4)
    evaluator = LoaderEvaluator(loader, mode="replay", num_cached_batches=1)
    for _ in range(2):
        for (x,) in evaluator:
            assert x.sum() == 0
            x.add_(1)


def test_an_empty_loader_replays_no_batches() -> None:
    evaluator = LoaderEvaluator(DataLoader(TensorDataset(torch.empty(0, 2))), mode="replay")
    assert list(evaluator) == []
    assert evaluator.get_metrics() == {}
    assert not evaluator.cache_ready


def test_making_a_replay_draws_no_random_numbers() -> None:
    class Augmented(TensorDataset):
        def __getitem__(self, index: int) -> Any:
            return random.random() + np.random.rand() + torch.rand(()).item()

    own = torch.Generator().manual_seed(3)
    loader = DataLoader(Augmented(torch.zeros(64)), batch_size=4, shuffle=True, generator=own)
    before = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state(), own.get_state()
    LoaderEvaluator(loader, mode="replay", num_cached_batches=2)
    assert random.getstate() == before[0]
    assert np.array_equal(np.random.get_state()[1], before[1])
    assert torch.equal(torch.get_rng_state(), before[2])
    assert torch.equal(own.get_state(), before[3])


def test_making_a_replay_leaves_a_stateful_sampler_where_it_stood() -> None:
    class Walking(RandomSampler):
        def __init__(self, size: int) -> None:
            super().__init__(range(size))
            self.epoch = 0
            self.order = list(range(size))
            self.rng = random.Random(1)

        def __iter__(self) -> Any:
            self.epoch += 1
            self.rng.shuffle(self.order)
            return iter(list(self.order))

    data = TensorDataset(torch.arange(32))
    touched, untouched = Walking(32), Walking(32)
    LoaderEvaluator(DataLoader(data, batch_size=4, sampler=touched), mode="replay", num_cached_batches=2)
    assert touched.epoch == 0
    assert list(touched) == list(untouched)


# --- how long a replayed epoch is ---


def test_replay_is_as_long_as_the_loader() -> None:
    assert len(list(LoaderEvaluator(numbered(7), mode="replay", num_cached_batches=2))) == 7


def test_a_loader_without_a_length_can_be_replayed() -> None:
    loader = DataLoader(Stream(10), batch_size=2)
    assert len(list(LoaderEvaluator(loader, mode="replay"))) == 5


def test_what_an_epoch_really_yielded_counts_more_than_a_length_that_lies() -> None:
    loader = DataLoader(Stream(10, claimed=100), batch_size=2)
    assert len(list(LoaderEvaluator(loader))) == 5
    assert len(list(LoaderEvaluator(loader, mode="replay", num_cached_batches=2))) == 5


def test_a_claimed_length_is_used_when_nothing_better_is_known() -> None:
    loader = DataLoader(Stream(10, claimed=10), batch_size=3)
    assert len(list(LoaderEvaluator(loader, mode="replay", num_cached_batches=2))) == 4


def test_replay_batches_decides_if_given() -> None:
    loader = DataLoader(Stream(None), batch_size=2)
    evaluator = LoaderEvaluator(loader, mode="replay", num_cached_batches=2, replay_batches=9)
    assert len(list(evaluator)) == len(evaluator) == 9


def test_the_loader_is_not_asked_for_a_length_that_changes_torchs_warnings() -> None:
    loader = DataLoader(Stream(10, claimed=4), batch_size=2)
    evaluator = LoaderEvaluator(loader, mode="replay", num_cached_batches=1)
    assert sum(1 for _ in evaluator) == 2  # list() would itself ask for the length
    evaluator.print_summary()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once len() was called, torch warns about samples past it
        assert sum(1 for _ in LoaderEvaluator(loader)) == 5


def test_len_without_a_length_raises_as_the_loader_does() -> None:
    with pytest.raises(TypeError):
        len(LoaderEvaluator(DataLoader(Stream(10), batch_size=2)))


# --- what is measured ---


def test_no_time_is_negative_even_if_the_wall_clock_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(10_000, 0, -1))
    monkeypatch.setattr("time.time", lambda: float(next(times)))
    evaluator = LoaderEvaluator(numbered())
    iterator = iter(evaluator)
    next(iterator)
    list(evaluator)
    metrics = evaluator.get_metrics()
    assert metrics["total_time"] >= sum(metrics["batch_times"]) >= 0
    assert min(metrics["batch_times"] + metrics["step_times"]) >= 0


def test_a_new_epoch_adds_to_the_last_one() -> None:
    evaluator = LoaderEvaluator(numbered())
    list(evaluator)
    list(evaluator)
    metrics = evaluator.get_metrics()
    assert metrics["total_batches"] == len(metrics["batch_times"]) == 12
    assert [epoch["batches"] for epoch in metrics["epochs"]] == [6, 6]


def test_two_iterators_at_once_have_a_record_each() -> None:
    evaluator = LoaderEvaluator(numbered())
    first, second = iter(evaluator), iter(evaluator)
    for _ in range(3):
        next(first)
    next(second)
    assert [epoch["batches"] for epoch in evaluator.get_metrics()["epochs"]] == [3, 1]


def test_starting_the_workers_is_timed() -> None:
    evaluator = LoaderEvaluator(numbered(num_workers=1))
    list(evaluator)
    metrics = evaluator.get_metrics()
    (start_s,) = metrics["iterator_start_times"]
    assert 0 < start_s < metrics["total_time"]


def test_steps_are_timed_across_epochs() -> None:
    evaluator = LoaderEvaluator(numbered())
    list(evaluator)
    list(evaluator)
    assert len(evaluator.get_metrics()["step_times"]) == 11


def test_metrics_say_what_their_times_mean() -> None:
    evaluator = LoaderEvaluator(numbered())
    list(evaluator)
    assert evaluator.get_metrics()["device"]
    assert "host time" in evaluator.get_metrics()["batch_time_is"]


def test_the_metrics_file_is_written_when_an_epoch_ends(tmp_path: Path) -> None:
    file = tmp_path / "metrics.json"
    evaluator = LoaderEvaluator(numbered(), metrics_file=str(file))
    list(evaluator)
    assert json.loads(file.read_text()) == evaluator.get_metrics()


# --- arguments ---


@pytest.mark.parametrize("mode", ["Log", "", None, "reply"])
def test_an_unknown_mode_is_refused(mode: Any) -> None:
    with pytest.raises(ValueError, match="'log' or 'replay'"):
        LoaderEvaluator(numbered(), mode=mode)


@pytest.mark.parametrize("mode", ["log", "replay"])
@pytest.mark.parametrize("count", [0, -1, None, True, 2.5])
def test_a_number_of_batches_that_makes_no_sense_is_refused(mode: Any, count: Any) -> None:
    with pytest.raises(UsageError, match="num_cached_batches"):
        LoaderEvaluator(numbered(), mode=mode, num_cached_batches=count)


def test_what_cannot_be_iterated_is_refused() -> None:
    with pytest.raises(UsageError, match="must be iterable"):
        LoaderEvaluator(7)  # type: ignore[arg-type]  # the point of the test


# --- standing in for the loader ---


def test_it_is_a_dataloader_and_an_evaluator() -> None:
    evaluator = LoaderEvaluator(numbered())
    assert isinstance(evaluator, DataLoader)
    assert isinstance(evaluator, LoaderEvaluator)
    assert not isinstance(LoaderEvaluator([1, 2]), DataLoader)


def test_attributes_are_the_loaders() -> None:
    data = TensorDataset(torch.arange(8))
    sampler = DistributedSampler(data, num_replicas=1, rank=0)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    evaluator: Any = LoaderEvaluator(loader)
    evaluator.sampler.set_epoch(3)
    evaluator.note = "mine"
    assert evaluator.dataset is data
    assert evaluator.batch_size == 4
    assert sampler.epoch == 3
    assert loader.note == "mine"  # type: ignore[attr-defined]  # set just above
    assert "num_workers" in dir(evaluator)
    with pytest.raises(ValueError, match="batch_size"):
        evaluator.batch_size = 3
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = evaluator.no_such_thing


def test_its_own_settings_are_fixed() -> None:
    evaluator = LoaderEvaluator(numbered())
    with pytest.raises(UsageError, match="mode of a LoaderEvaluator cannot be changed"):
        evaluator.mode = "replay"


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize("mode", ["log", "replay"])
def test_copying_and_pickling_work(copied: Any, mode: Any) -> None:
    evaluator = LoaderEvaluator(numbered(), mode=mode, num_cached_batches=2)
    list(evaluator)
    twin = copied(evaluator)
    assert type(twin) is LoaderEvaluator
    assert twin.mode == mode
    assert twin.get_metrics() == {}
    assert len(first_numbers(twin)) == 6


def test_truth_is_the_loaders() -> None:
    assert LoaderEvaluator(x for x in (1, 2))
    assert not LoaderEvaluator([])


class Interrupted(list[Any]):
    """A batch during whose counting Ctrl-C comes."""

    @property
    def shape(self) -> Any:
        raise KeyboardInterrupt


def test_a_ctrl_c_while_a_batch_is_counted_reaches_training_and_leaves_the_log_whole(tmp_path: Path) -> None:
    batches = [torch.zeros(4), Interrupted(), torch.zeros(4)]
    evaluator = LoaderEvaluator(batches, mode="log", log_file=tmp_path / "log.json")
    iterator = iter(evaluator)
    next(iterator)
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    assert len(list(iterator)) == 1
    log = json.loads((tmp_path / "log.json").read_text())
    assert (log["batch_sizes"], len(log["batch_times"]), len(log["step_times"])) == ([4, 4], 2, 1)
