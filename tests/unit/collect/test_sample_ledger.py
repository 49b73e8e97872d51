"""Counts and digests of what a sampler gives out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler, Subset

from unstarve.collect import sample_ledger
from unstarve.collect.sample_ledger import HEAD, EpochSamples

Noted = list[tuple[str, dict[str, Any]]]


def written(batches: Sequence[Any], length: int | None = 10_000, sampler: Any = None) -> dict[str, Any]:
    noted: Noted = []
    samples = EpochSamples(lambda kind, **fields: noted.append((kind, fields)), 3, 7, sampler, length)
    for batch in batches:
        samples.aside.append(batch)
        samples.count()
    samples.write()
    if not noted:
        return {}
    ((kind, fields),) = noted
    assert kind == "samples"
    return fields


def test_indices_are_counted_however_they_come() -> None:
    as_lists = written([[1, 2], [3, 1]])
    assert (as_lists["indices"], as_lists["distinct"]) == (4, 3)
    for same in ([1, 2, 3, 1], [torch.tensor([1, 2]), torch.tensor([3, 1])], [(1, 2), (3, 1)]):
        assert written(same) == as_lists


def test_the_order_has_a_digest_and_the_set_another() -> None:
    forwards, backwards = written([list(range(5000))]), written([list(range(5000))[::-1]])
    assert forwards["order"] != backwards["order"]
    assert forwards["head"] != backwards["head"]
    assert forwards["members"] == backwards["members"]
    assert written([list(range(1, 5001))])["members"] != forwards["members"]


def test_the_digest_of_the_head_does_not_depend_on_what_follows_or_on_batches() -> None:
    whole = written([list(range(i, i + 100)) for i in range(0, 9000, 100)])
    broken_off = written([list(range(i, i + 7)) for i in range(0, 7 * 300, 7)])
    assert whole["headed"] == broken_off["headed"] == HEAD
    assert whole["head"] == broken_off["head"]


@pytest.mark.parametrize("batches", [[["a", "b"]], [[None, None]], [[(1, 2)]], [[2**70]], []])
def test_what_is_not_a_number_is_not_noted(batches: Sequence[Any]) -> None:
    assert written(batches) == {}


@pytest.mark.parametrize(("batches", "length"), [([[1, 20]], 10), ([[-1]], 10), ([[1, 2]], None)])
def test_indices_of_no_known_dataset_have_only_a_head(batches: Sequence[Any], length: int | None) -> None:
    noted = written(batches, length)
    assert noted["headed"] == len(batches[0])
    assert noted["distinct"] is noted["order"] is noted["members"] is None


def test_where_counting_costs_too_much_only_the_head_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]

    def clock() -> int:
        now[0] += 1_000_000  # each look at the clock takes a millisecond: counting seems slow
        return now[0]

    monkeypatch.setattr(sample_ledger, "_clock", clock)
    noted = written([list(range(i, i + 50)) for i in range(0, 9000, 50)])
    assert noted["distinct"] is None
    assert noted["headed"] == HEAD
    assert noted["indices"] < 9000


def test_samplers_of_torch_say_whether_they_shuffle() -> None:
    data = Subset(torch.utils.data.TensorDataset(torch.zeros(8)), range(8))
    distributed = DistributedSampler(data, 2, 0, shuffle=True)
    distributed.set_epoch(4)
    told = {
        name: (noted["shuffles"], noted["sampler_epoch"])
        for name, sampler in {
            "random": RandomSampler(data),
            "with replacement": RandomSampler(data, replacement=True),
            "sequential": SequentialSampler(data),
            "distributed": distributed,
            "own": BatchSampler(SequentialSampler(data), 2, False),
        }.items()
        for noted in [written([[1]], sampler=sampler)]
    }
    assert told == {
        "random": (True, None),
        "with replacement": (False, None),
        "sequential": (False, None),
        "distributed": (True, 4),
        "own": (None, None),
    }
