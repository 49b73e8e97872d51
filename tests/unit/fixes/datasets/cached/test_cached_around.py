"""A cache stands wherever torch takes a dataset: in others, under any sampler, pickled."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    Subset,
    WeightedRandomSampler,
    default_collate,
)

from cached_sources import COLLATED, Source, X, image
from same_batches import assert_same
from unstarve import CachedDataset


@pytest.mark.parametrize(
    "make", [lambda d: Subset(d, [5, 1, 3]), lambda d: ConcatDataset([d, d]), lambda d: d[2:9:3]]
)
def test_it_may_stand_in_other_datasets(make: Callable[[Dataset[Any]], Any]) -> None:
    plain = Source(COLLATED["pair"])
    around = make(CachedDataset(plain))
    expected = (
        Subset(plain, range(2, 9, 3)) if isinstance(getattr(around, "indices", 0), range) else make(plain)
    )
    for batch, other in zip(
        DataLoader(around, batch_size=2), DataLoader(expected, batch_size=2), strict=True
    ):
        assert_same(batch, other)


def test_a_slice_is_a_subset() -> None:
    cached = CachedDataset(torch.arange(20))
    assert isinstance(cached[10:20], Subset)
    assert [int(each) for each in cached[10:20]] == list(range(10, 20))
    assert len(cached[-3:]) == 3


@pytest.mark.parametrize(
    "arguments",
    [
        {"shuffle": True, "batch_size": 5},
        {"sampler": WeightedRandomSampler(torch.ones(12), 9), "batch_size": 4},
        {"batch_sampler": BatchSampler(range(11, -1, -1), 5, drop_last=True)},
        {"batch_size": None},
    ],
)
def test_any_sampler_gives_what_it_gives_without_the_cache(arguments: dict[str, Any]) -> None:
    def epoch(dataset: Dataset[Any]) -> list[Any]:
        torch.manual_seed(3)
        return list(DataLoader(dataset, **arguments))

    assert_same(epoch(CachedDataset(Source(COLLATED["dict"]))), epoch(Source(COLLATED["dict"])))


def ends(index: int) -> dict[str, Any]:
    return {"x": image(index), "name": f"n{index}", "r": torch.arange(index)}


@pytest.mark.parametrize("data", [X, (X, X.numpy()), Source(COLLATED["pair"]), Source(ends)])
def test_it_can_be_pickled_and_copied(data: Any) -> None:
    make = data.make if isinstance(data, Source) else None
    if make is not None and make is not ends:
        data = Source(image)
    cached = CachedDataset(data)
    for other in (pickle.loads(pickle.dumps(cached)), copy.deepcopy(cached), copy.copy(cached)):
        assert_same(list(other), list(cached))
        assert_same(default_collate(other.__getitems__([1])), default_collate([cached[1]]))
    assert cached.source is not None


def test_an_incomplete_cache_can_be_pickled_and_goes_on_filling() -> None:
    cached = CachedDataset(Source(ends), fill="lazy")
    other = pickle.loads(pickle.dumps(cached))
    assert_same(list(other), [ends(i) for i in range(12)])


def test_it_says_what_it_holds() -> None:
    text = repr(CachedDataset(Source(COLLATED["pair"])))
    assert text.startswith("CachedDataset(12 samples of tensor of uint8 3×4×4, int; in memory")
    assert "0 of them" not in text
    assert "3 of them" in repr(CachedDataset(Source(COLLATED["pair"]), fill="lazy"))
    assert "used in place" in repr(CachedDataset(X))
