"""Ranks that compare their loaders through a store."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tests.helpers.checked import first_batches, ids, subject_of
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, TensorDataset

from unstarve.checks.objects import ranks
from unstarve.checks.objects.ranks import compared, exchanged

DATA = TensorDataset(torch.arange(40))


class Stream(IterableDataset[Any]):
    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks

    def __iter__(self) -> Iterator[Any]:
        return iter(range(self.rank, 40, self.ranks))


@pytest.fixture(autouse=True)
def gradients_are_averaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "is_data_parallel", lambda ranks: True)


def found_by(*loaders: DataLoader[Any], **facts: Any) -> list[str]:
    """What ranks with these loaders find."""
    store = dist.HashStore()
    subjects = [subject_of(loader, batches=first_batches(loader, 1), **facts) for loader in loaders]
    with ThreadPoolExecutor(len(loaders)) as pool:
        shares = list(
            pool.map(lambda rank: exchanged(subjects[rank], store, rank, len(loaders)), range(len(loaders)))
        )
    assert shares[0] == shares[-1]
    return [one.id for one in compared(subjects[0], shares[0])]


def test_ranks_without_a_distributed_sampler_see_the_same_samples() -> None:
    loaders = [DataLoader(DATA, batch_size=4) for _ in range(2)]
    assert found_by(*loaders) == ["ranks-not-split"]
    assert found_by(*loaders, is_training=False) == []  # each rank may validate on everything


def test_ranks_that_iterate_the_same_stream_are_found() -> None:
    loaders = [DataLoader(Stream(0, 1), batch_size=4) for _ in range(2)]
    assert found_by(*loaders) == ["iterable-not-split-by-rank"]


def test_ranks_with_different_numbers_of_batches_are_found() -> None:
    few = DataLoader(DATA, batch_sampler=BatchSampler(range(0, 40, 4), 2, drop_last=False))
    many = DataLoader(DATA, batch_sampler=BatchSampler(range(1, 40, 2), 2, drop_last=False))
    assert found_by(few, many) == ["uneven-ranks"]


def test_ranks_that_share_the_data_are_left_alone() -> None:
    samplers = [DistributedSampler(DATA, num_replicas=3, rank=rank) for rank in range(3)]
    assert found_by(*(DataLoader(DATA, batch_size=4, sampler=sampler) for sampler in samplers)) == []
    assert found_by(*(DataLoader(Stream(rank, 2), batch_size=4) for rank in range(2))) == []
    constant = TensorDataset(torch.zeros(40))
    assert found_by(*(DataLoader(constant, batch_size=4) for _ in range(2))) == []


def test_ranks_that_may_share_a_batch_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "is_data_parallel", lambda ranks: False)  # such as tensor parallelism
    assert found_by(*(DataLoader(DATA, batch_size=4) for _ in range(2))) == []


def test_a_rank_that_stays_away_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "_PATIENCE_S", 0.0)
    subject = subject_of(DataLoader(DATA))
    assert exchanged(subject, dist.HashStore(), 0, 2) == []


def test_a_process_alone_has_nothing_to_compare() -> None:
    loader = DataLoader(DATA, batch_size=4)
    assert ids(loader, batches=first_batches(loader, 1)) == []
