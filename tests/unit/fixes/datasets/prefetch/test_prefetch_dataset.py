"""The same samples in the same order, fetched before they are asked for."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import pickle
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import unstarve
from prefetch_sources import Batches, Waiting, no_threads, until
from unstarve import AsyncPrefetchDataset
from unstarve.fixes.datasets.prefetch import thread_judge as judge


@pytest.fixture(autouse=True)
def _fetches_are_known_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is claimed here holds where threads are used; when they are is another file's claim."""
    monkeypatch.setattr(judge, "timed", lambda fetch: (fetch(), judge.FetchTime(2e-3, 1e-4)))


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    if not no_threads():
        gc.collect()
    until(no_threads, "all threads ended")


def numbers(batches: Any) -> list[list[int]]:
    return [batch[..., 0].reshape(-1).tolist() for batch in batches]


class Every3rd(Sampler[int]):
    """Not one of torch's. `given` tells how far it was pulled."""

    def __init__(self, count: int) -> None:
        self.count, self.given = count, 0

    def __iter__(self) -> Iterator[int]:
        for index in range(0, self.count, 3):
            self.given += 1
            yield index

    def __len__(self) -> int:
        return len(range(0, self.count, 3))


LOADERS: dict[str, dict[str, Any]] = {
    "in order": {"batch_size": 4},
    "shuffled": {"batch_size": 4, "shuffle": True},
    "single": {"batch_size": 1, "shuffle": True},
    "unbatched": {"batch_size": None, "shuffle": True},
    "last dropped": {"batch_size": 7, "shuffle": True, "drop_last": True},
    "generator": {"batch_size": 7, "shuffle": True, "generator": 5},
    "weighted": {"batch_size": 4, "sampler": lambda d: WeightedRandomSampler([1.0, 3.0, 2.0], 21)},
    "with replacement": {"batch_size": 4, "sampler": lambda d: RandomSampler(d, True, 30)},
    "longer than the data": {"batch_size": 4, "sampler": lambda d: RandomSampler(d, False, 60)},
    "subset of indices": {"batch_size": 4, "sampler": lambda d: SubsetRandomSampler(range(3, 17))},
    "own sampler": {"batch_size": 4, "sampler": lambda d: Every3rd(len(d))},
    "batch sampler": {"batch_sampler": lambda d: BatchSampler(SequentialSampler(d), 5, False)},
    "two workers": {"batch_size": 4, "shuffle": True, "num_workers": 2},
}


@pytest.mark.parametrize("loader_type", [DataLoader, unstarve.DataLoader])
@pytest.mark.parametrize("name", LOADERS)
def test_a_loader_gives_the_same_batches_and_draws_the_same_random_numbers(
    name: str, loader_type: Any
) -> None:
    seen = []
    for dataset in (Waiting(24), AsyncPrefetchDataset(Waiting(24), queue_size=6, num_workers=4)):
        options = {k: v(dataset) if callable(v) else v for k, v in LOADERS[name].items()}
        if "generator" in options:
            options["generator"] = torch.Generator().manual_seed(options["generator"])
        loader = loader_type(dataset, **options)
        torch.manual_seed(1)
        epochs = []
        for _ in range(2):
            for batch in loader:
                state = options["generator"].get_state().tolist() if "generator" in options else None
                epochs.append((numbers([batch]), torch.get_rng_state().tolist(), state))
        seen.append((epochs, len(loader), torch.rand(1).item()))
    assert seen[0] == seen[1]


def test_samples_are_fetched_along_the_shuffled_order_and_no_further_than_the_queue() -> None:
    source = Waiting(60)
    loader = DataLoader(AsyncPrefetchDataset(source, queue_size=6, num_workers=3), batch_size=4, shuffle=True)
    torch.manual_seed(3)
    order = [
        i for batch in numbers(DataLoader(Waiting(60, wait_s=0), batch_size=4, shuffle=True)) for i in batch
    ]
    torch.manual_seed(3)
    given = 0
    for batch in loader:
        given += len(batch)
        reach = min(given + 6, 60)
        until(lambda reach=reach: len(source.fetched) >= reach, "the queue is full")  # type: ignore[misc] # mypy wants a lambda without defaults
        assert sorted(source.fetched) == sorted(order[:reach])
    assert given == 60
    assert len(source.threads) == 4  # the first sample is fetched by the asking thread, to measure it


def test_a_batch_is_fetched_side_by_side_even_where_the_order_is_unknown() -> None:
    source = Waiting(32)
    together = threading.Barrier(4, timeout=180)
    dataset = AsyncPrefetchDataset(source, queue_size=0, num_workers=4)
    assert numbers(dataset[i] for i in range(3)) == [[0], [1], [2]]
    source.__class__ = type("Meeting", (Waiting,), {"__getitem__": lambda s, i: together.wait() * 0 + i})
    assert dataset.__getitems__([9, 3, 7, 5]) == [9, 3, 7, 5]


def test_a_sampler_of_ones_own_is_pulled_ahead_only_when_it_is_followed() -> None:
    source = Waiting(48)
    dataset = AsyncPrefetchDataset(source, queue_size=6, num_workers=2)
    sampler = Every3rd(48)
    iterator = iter(DataLoader(dataset, batch_size=2, sampler=sampler))
    assert numbers([next(iterator), next(iterator)]) == [[0, 3], [6, 9]]
    assert sampler.given == 4
    assert "nothing is fetched beyond a batch: Every3rd may depend on when it is asked" in dataset.explain()

    source, sampler = Waiting(48), Every3rd(48)
    dataset = AsyncPrefetchDataset(source, queue_size=6, num_workers=2)
    followed = dataset.follow(sampler)
    assert (len(followed), followed.count) == (16, 48)  # type: ignore[arg-type, attr-defined] # a sampler may have both
    iterator = iter(DataLoader(dataset, batch_size=2, sampler=followed))
    assert numbers([next(iterator)]) == [[0, 3]]
    until(lambda: len(source.fetched) == 8, "six more are under way")
    assert sorted(source.fetched) == [0, 3, 6, 9, 12, 15, 18, 21]
    assert sampler.given == 8
    assert numbers(iterator) == [[i, i + 3] for i in range(6, 48, 6)]
    assert "nothing beyond" not in dataset.explain()


def test_a_followed_batch_sampler_gives_the_same_batches() -> None:
    dataset = AsyncPrefetchDataset(Waiting(20), queue_size=6, num_workers=3)
    batches = [[3, 1], [5], [2, 2, 2], [19, 0]]
    assert numbers(DataLoader(dataset, batch_sampler=dataset.follow(batches))) == batches


def test_a_followed_sampler_is_not_pulled_ahead_for_workers_that_fetch_elsewhere() -> None:
    dataset = AsyncPrefetchDataset(Waiting(60), queue_size=30, num_workers=2)
    sampler = Every3rd(60)
    loader = DataLoader(
        dataset, batch_size=2, sampler=dataset.follow(sampler), num_workers=1, prefetch_factor=2
    )
    iterator = iter(loader)
    next(iterator)
    assert sampler.given == 6  # one batch given, two under way
    assert len(numbers(iterator)) == 9


@pytest.mark.parametrize("stride", [1, 3, -2])
def test_direct_access_with_a_steady_stride_is_fetched_ahead(stride: int) -> None:
    source = Waiting(40)
    dataset = AsyncPrefetchDataset(source, queue_size=4, num_workers=2)
    begin = 0 if stride > 0 else 39
    for step in range(3):
        assert dataset[begin + step * stride][0] == begin + step * stride
    until(lambda: len(source.fetched) == 7, "four more are under way")
    assert sorted(source.fetched) == sorted(begin + step * stride for step in range(7))
    dataset.close()


def test_a_guess_stays_inside_the_dataset_and_a_wrong_one_is_dropped() -> None:
    source = Waiting(6)
    dataset = AsyncPrefetchDataset(source, queue_size=4, num_workers=2)
    assert numbers(dataset[i] for i in (2, 3, 4, 5, 1, 1, 0)) == [[2], [3], [4], [5], [1], [1], [0]]
    assert set(source.fetched) <= set(range(6))
    dataset.close()


def test_a_loop_over_the_dataset_is_fetched_ahead_and_ends() -> None:
    source = Waiting(12)
    dataset = AsyncPrefetchDataset(source, queue_size=4, num_workers=2)
    iterator = iter(dataset)
    assert next(iterator)[0] == 0
    until(lambda: len(source.fetched) == 5, "four more are under way")
    assert numbers(iterator) == [[i] for i in range(1, 12)]
    assert numbers(dataset) == [[i] for i in range(12)]
    assert numbers(x for pair in zip(dataset, dataset, strict=True) for x in pair) == [
        [i // 2] for i in range(24)
    ]


def test_a_source_without_a_length_is_read_until_its_index_error() -> None:
    class Sequence:
        def __getitem__(self, index: int) -> torch.Tensor:
            return Waiting(5)[[0, 1, 2, 3, 4][index]]

    assert numbers(AsyncPrefetchDataset(Sequence(), 3, 2)) == [[i] for i in range(5)]


def test_subsets_and_concatenations_are_fetched_ahead() -> None:
    sources = [Waiting(20), Waiting(10)]
    first, second = (AsyncPrefetchDataset(source, queue_size=4, num_workers=2) for source in sources)
    joined = Subset(ConcatDataset([first, second]), [*range(18, 30), *range(6)])
    iterator = iter(DataLoader(joined, batch_size=3))
    assert numbers([next(iterator)]) == [[18, 19, 0]]
    until(lambda: len(sources[1].fetched) == 5, "four more of the second are under way")
    assert sorted(sources[1].fetched) == [0, 1, 2, 3, 4]
    assert numbers(iterator) == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [0, 1, 2], [3, 4, 5]]
    assert sorted(sources[0].fetched) == [*range(6), 18, 19]
    assert sorted(sources[1].fetched) == [*range(10)]


def test_over_a_subset_samples_are_fetched_side_by_side() -> None:
    source = Waiting(20)
    dataset = AsyncPrefetchDataset(Subset(source, range(10, 20)), queue_size=2, num_workers=2)
    assert numbers(DataLoader(dataset, batch_size=5)) == [[*range(10, 15)], [*range(15, 20)]]
    assert len(source.threads) == 3


def test_a_dataset_with_batches_of_its_own_is_asked_for_the_loaders_batches() -> None:
    source = Batches(40)
    loader = DataLoader(AsyncPrefetchDataset(source, queue_size=6, num_workers=2), batch_size=4, shuffle=True)
    iterator = iter(loader)
    given = numbers([next(iterator)])
    until(lambda: len(source.asked) == 2, "the next batch is under way")
    given += numbers(iterator)
    assert sorted(source.asked) == sorted(given)
    assert sorted(i for batch in given for i in batch) == [*range(40)]
    assert source.fetched == []


def test_an_error_is_raised_at_its_sample_with_its_traceback_and_the_loader_goes_on() -> None:
    dataset = AsyncPrefetchDataset(Waiting(20, bad=10), queue_size=16, num_workers=4)
    iterator = iter(DataLoader(dataset, batch_size=4))
    assert numbers([next(iterator), next(iterator)]) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(OSError, match="sample 10 is damaged") as raised:
        next(iterator)
    assert "__getitem__" in [frame.name for frame in traceback.extract_tb(raised.tb)]
    assert numbers(iterator) == [[12, 13, 14, 15], [16, 17, 18, 19]]


def test_an_error_of_the_sampler_is_raised_in_its_turn() -> None:
    def fails() -> Iterator[int]:
        yield from range(3)
        raise LookupError("no more indices")

    class Fails(Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            return fails()

    dataset = AsyncPrefetchDataset(Waiting(), queue_size=8, num_workers=2)
    iterator = iter(DataLoader(dataset, batch_size=1, sampler=dataset.follow(Fails())))
    assert numbers([next(iterator), next(iterator), next(iterator)]) == [[0], [1], [2]]
    with pytest.raises(LookupError, match="no more indices"):
        next(iterator)


def test_an_abandoned_iteration_leaves_no_thread_and_fetches_nothing_more() -> None:
    source = Waiting(400)
    dataset = AsyncPrefetchDataset(source, queue_size=390, num_workers=2)
    for _ in DataLoader(dataset, batch_size=2, shuffle=True):
        break
    until(no_threads, "the threads ended")
    fetched = len(source.fetched)
    assert fetched < 390
    assert numbers(DataLoader(dataset, batch_size=50)) == [[*range(i, i + 50)] for i in range(0, 400, 50)]


def test_a_dataset_that_is_gone_leaves_no_thread() -> None:
    dataset = AsyncPrefetchDataset(Waiting(400), queue_size=200, num_workers=2)
    assert numbers(dataset[i] for i in range(4)) == [[0], [1], [2], [3]]
    del dataset
    until(no_threads, "the threads ended")


def _child(dataset: Any, indices: list[int], answers: Any) -> None:
    answers.put((numbers(dataset.__getitems__(indices)), threading.active_count() > 1, os.getpid()))


def test_a_fork_starts_threads_of_its_own() -> None:
    dataset = AsyncPrefetchDataset(Waiting(), queue_size=4, num_workers=2)
    iterator = iter(DataLoader(dataset, batch_size=2))
    assert numbers([next(iterator)]) == [[0, 1]]
    until(lambda: not no_threads(), "there are threads here")
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_child, args=(dataset, [2, 3, 30], answers))
    child.start()
    got, has_threads, process = answers.get(timeout=180)
    child.join(180)
    assert (got, has_threads, process) == ([[2], [3], [30]], True, child.pid)
    assert child.exitcode == 0
    assert numbers([next(iterator)]) == [[2, 3]]


def test_a_spawned_worker_gives_the_same_batches() -> None:
    dataset = AsyncPrefetchDataset(Waiting(8), queue_size=4, num_workers=2)
    loader = DataLoader(dataset, batch_size=4, num_workers=1, multiprocessing_context="spawn")
    assert numbers(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_it_can_be_pickled_and_copied_while_it_fetches() -> None:
    dataset = AsyncPrefetchDataset(Waiting(12), queue_size=4, num_workers=2)
    iterator = iter(DataLoader(dataset, batch_size=2))
    next(iterator)
    for other in (pickle.loads(pickle.dumps(dataset)), copy.copy(dataset), copy.deepcopy(dataset)):
        assert (type(other), other.queue_size, other.num_workers) == (AsyncPrefetchDataset, 4, 2)
        assert numbers(other) == [[i] for i in range(12)]


def test_it_looks_like_its_source() -> None:
    dataset = AsyncPrefetchDataset(Waiting(12))
    assert (len(dataset), dataset.classes, dataset.queue_size, dataset.num_workers) == (
        12,
        ["cat", "dog"],
        10,
        2,
    )
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = dataset.nothing_of_the_kind
    assert not hasattr(
        AsyncPrefetchDataset(type("Rows", (), {"rows": 1})()), "rows"
    )  # a shortcut past samples
    lists = AsyncPrefetchDataset([10, 20, 30, 40])
    assert (lists[1:3], lists[-1], list(lists)) == ([20, 30], 40, [10, 20, 30, 40])
    rows = AsyncPrefetchDataset(TensorDataset(torch.arange(6)))
    assert rows[2:4][0].tolist() == [2, 3]


def test_keys_need_not_be_numbers() -> None:
    prices = {"apple": 1, ("pear", 2): 3}
    dataset = AsyncPrefetchDataset(prices, queue_size=2, num_workers=1)
    assert [*DataLoader(dataset, batch_size=None, sampler=dataset.follow([*prices]))] == [1, 3]  # type: ignore[arg-type] # any iterable of keys


@pytest.mark.parametrize(
    ("options", "what"), [({"queue_size": -1}, "queue_size"), ({"num_workers": 0}, "num_workers")]
)
def test_sizes_that_make_no_sense_are_refused(options: dict[str, int], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        AsyncPrefetchDataset(Waiting(), **options)


def test_the_next_epoch_begins_with_all_threads() -> None:
    """Threads that were asked to leave at the end of an epoch stay for what the next one asks for."""
    gate = threading.Barrier(4, timeout=180)

    class Together(Waiting):
        def __getitem__(self, index: int) -> torch.Tensor:
            if index < 4 and self.fetched:
                gate.wait()  # only passes where four threads fetch side by side
            return super().__getitem__(index)

    dataset = Together(8)
    prefetching = AsyncPrefetchDataset(dataset, queue_size=0, num_workers=4)
    loader = DataLoader(prefetching, batch_sampler=[[4, 5, 6, 7], [0, 1, 2, 3]])
    for _ in range(20):
        assert numbers(loader) == [[4, 5, 6, 7], [0, 1, 2, 3]]
