"""Random augmentation goes on, too: bit for bit with as many workers as before, or without workers."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from resumed import Stop, assert_resumes, disturb, train
from unstarve import DataLoader
from unstarve.fixes.samples.random_streams import generator_here

COUNT, BATCH = 22, 4
STOPS = [Stop(0, 1), Stop(1, 0), Stop(1, 3), Stop(1, 6), Stop(1, None)]


class Augmented(Dataset[Any]):
    """Each sample holds numbers drawn from the three generators of a process."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return index, torch.rand(2), torch.tensor([np.random.rand(), random.random(), random.gauss(0, 1)])


class DrawsInThreads(Dataset[Any]):
    """Draws from the random stream of the thread or process that makes the batch."""

    releases_gil = True
    draws = True

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return self._sample(index)

    def _sample(self, index: int) -> Any:
        return index, torch.rand(2, generator=generator_here())

    def read_batch(self, indices: Sequence[int]) -> Any:
        rows = [self._sample(int(index)) for index in indices]
        return [torch.tensor([index for index, _ in rows]), torch.stack([drawn for _, drawn in rows])]


def seeds_itself(worker: int) -> None:
    np.random.seed(torch.initial_seed() % 2**32)
    random.seed(worker)


def make(dataset: Any = None, **arguments: Any) -> Any:
    return DataLoader(dataset or Augmented(), batch_size=BATCH, shuffle=True, **arguments)


@pytest.mark.parametrize("stop", STOPS, ids=str)
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("engine", ["ring", "stock"])
def test_each_worker_goes_on_with_its_own_random_numbers(engine: str, persistent: bool, stop: Stop) -> None:
    workers = {"engine": engine, "num_workers": 2, "persistent_workers": persistent}
    assert_resumes(functools.partial(make, **workers), stop)


@pytest.mark.parametrize("stop", STOPS, ids=str)
def test_the_workers_may_change_their_engine(stop: Stop) -> None:
    ring = functools.partial(make, engine="ring", num_workers=2)
    stock = functools.partial(make, engine="stock", num_workers=2)
    assert_resumes(ring, stop, stock)


def test_a_worker_init_fn_that_seeds_does_not_start_the_streams_again() -> None:
    assert_resumes(functools.partial(make, num_workers=2, worker_init_fn=seeds_itself), Stop(1, 3))


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
@pytest.mark.parametrize("engine", ["ring", "stock"])
def test_however_workers_are_started(engine: str, context: str) -> None:
    make_one = functools.partial(make, engine=engine, num_workers=1, multiprocessing_context=context)
    assert_resumes(make_one, Stop(0, 2), epochs=1)


@pytest.mark.parametrize("stop", STOPS, ids=str)
def test_without_workers_the_process_goes_on_with_its_random_numbers(stop: Stop) -> None:
    assert_resumes(make, stop)


@pytest.mark.parametrize("stop", STOPS, ids=str)
@pytest.mark.parametrize("persistent", [False, True])
def test_threads_that_replace_workers_go_on_with_theirs(persistent: bool, stop: Stop) -> None:
    workers = {"num_workers": 2, "persistent_workers": persistent}
    threads = functools.partial(make, DrawsInThreads(), engine="threads", **workers)
    ring = functools.partial(make, DrawsInThreads(), engine="ring", **workers)
    assert_resumes(threads, stop)
    assert_resumes(threads, stop, ring)
    assert_resumes(ring, stop, threads)


def test_other_workers_give_the_same_order_with_other_random_numbers() -> None:
    disturb(11)
    whole, _ = train(make(num_workers=2), 1)
    disturb(11)
    before, state = train(make(num_workers=2), 1, Stop(0, 2))
    loader = make(num_workers=1)
    loader.load_state_dict(state)
    after, _ = train(loader, 1)
    resumed = before[0] + after[0]
    assert [batch[0].tolist() for batch, _ in resumed] == [batch[0].tolist() for batch, _ in whole[0]]
    assert not torch.equal(after[0][0][0][1], whole[0][2][0][1])


def test_a_state_after_a_break_is_that_of_the_last_batch() -> None:
    disturb(11)
    whole, _ = train(make(num_workers=2), 1)
    disturb(11)
    loader = make(num_workers=2)
    for number, _ in enumerate(loader):
        torch.rand(())
        if number == 2:
            break
    state = loader.state_dict()  # its workers are gone
    disturb()
    loader = make(num_workers=2)
    loader.load_state_dict(state)
    after, _ = train(loader, 1)
    assert len(after[0]) == 3
    for (ours, our_draw), (theirs, their_draw) in zip(after[0], whole[0][3:], strict=True):
        assert all(torch.equal(our, their) for our, their in zip(ours, theirs, strict=True))
        assert our_draw == their_draw
