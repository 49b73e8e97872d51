"""Budgets, frozen randomness, and stores that several threads and processes fill at once."""

from __future__ import annotations

import multiprocessing
import os
import random
import threading
import warnings
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

from unstarve import CachedDataset
from unstarve.errors import UsageError
from unstarve.fixes.memory.region import anonymous
from unstarve.fixes.memory.store.cache_placement import budget_of, parse_bytes
from unstarve.fixes.memory.store.sample_layout import layout_of
from unstarve.fixes.memory.store.sample_store import MISSING, ODD, ROW, Store, plan, write_header

# Budgets


@pytest.mark.parametrize(
    ("wish", "size_bytes"),
    [
        ("8GB", 8 * 10**9),
        ("1.5 gib", 3 * 2**29),
        ("512MiB", 2**29),
        ("100", 100),
        ("2k", 2000),
        (0, 0),
        (7, 7),
    ],
)
def test_a_budget_is_read(wish: Any, size_bytes: int) -> None:
    assert parse_bytes(wish) == size_bytes


@pytest.mark.parametrize("wish", ["", "GB", "8 apples", "-1GB", "1e3", -1, 1.5, True])
def test_what_is_no_budget_is_refused(wish: Any) -> None:
    with pytest.raises(UsageError, match="budget must be"):
        parse_bytes(wish)


def test_the_default_budget_is_a_share_of_what_is_free() -> None:
    free_bytes = psutil.virtual_memory().available
    assert 0 < budget_of(None).size_bytes < free_bytes
    assert "50%" in budget_of(None).reason


# Randomness


class Images(Dataset[Any]):
    def __init__(self, transform: Any = None) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(2)


class RandomFlip:
    def __call__(self, value: Any) -> Any:
        return value


class Resize(RandomFlip):
    pass


class Compose(RandomFlip):
    def __init__(self, *transforms: Any) -> None:
        self.transforms = list(transforms)


class Blur(RandomFlip):
    p = 0.5


Blur.__module__ = "albumentations.augmentations.blur"


@pytest.mark.parametrize(
    "dataset",
    [
        Images(RandomFlip()),
        Images(Compose(Resize(), Compose(RandomFlip()))),
        Images(torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU())),
        Subset(Images(Compose(RandomFlip())), [0, 1, 2]),
        ConcatDataset([Images(), Images(RandomFlip())]),
        Images(Blur()),
    ],
)
def test_random_transforms_that_would_be_frozen_are_seen(dataset: Any) -> None:
    if isinstance(getattr(dataset, "transform", None), torch.nn.Sequential):
        dataset.transform[0] = type("RandomErasing", (torch.nn.Identity,), {})()
    with pytest.warns(UserWarning, match=r"is random \((RandomFlip|RandomErasing|Blur)\).*transform="):
        CachedDataset(dataset)


@pytest.mark.parametrize("draw", [random.random, np.random.rand, lambda: torch.rand(1)])
def test_a_dataset_that_draws_random_numbers_is_seen(draw: Any) -> None:
    class Noisy(Images):
        def __getitem__(self, index: int) -> Any:
            return torch.tensor(float(draw()))

    with pytest.warns(UserWarning, match="Noisy is random .*drew random numbers"):
        CachedDataset(Noisy())


def test_a_dataset_that_is_not_random_is_cached_in_silence() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CachedDataset(Images(Compose(Resize(), torch.nn.ReLU())))


def test_the_random_streams_are_where_they_were() -> None:
    before = (random.getstate(), torch.get_rng_state().tolist(), np.random.get_state()[1].tolist())  # type: ignore[index] # the old form is a tuple
    CachedDataset(Images(), fill="lazy")[3]
    assert before == (random.getstate(), torch.get_rng_state().tolist(), np.random.get_state()[1].tolist())  # type: ignore[index] # as above


# Page-locked memory


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("data", [torch.randn(50, 3), Images()], ids=["tensor", "dataset"])
def test_a_pinned_cache_gives_pinned_rows_and_batches(data: Any) -> None:
    cached = CachedDataset(data, pin=True)
    assert cached.rows().is_pinned()
    assert next(iter(DataLoader(cached, batch_size=4))).is_pinned()
    assert not next(iter(DataLoader(cached, batch_size=4, num_workers=1))).is_pinned()


# Several at once


def sample(index: int, marker: int) -> tuple[torch.Tensor, str]:
    return torch.full((5000,), marker * 1000 + index), f"{marker}" * (index + 1)


def new_store(count: int, arena_bytes: int = 1 << 20) -> Store:
    planned = plan(layout_of([sample(0, 1), sample(1, 1)]), count, count, arena_bytes)
    region = anonymous(planned.size)
    write_header(region, planned)
    return Store(region, planned)


def fill_in_order(store: Store, marker: int, indices: list[int]) -> None:
    for index in indices:
        store.put(index, sample(index, marker))


def assert_whole(store: Store) -> None:
    for index in range(len(store.states)):
        row, text = store.get(index)
        marker = int(text[0])
        assert text == f"{marker}" * (index + 1)
        assert (row == marker * 1000 + index).all()


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_fillers_that_disagree_leave_every_sample_whole(kind: str) -> None:
    store = new_store(200)
    fork = multiprocessing.get_context("fork")
    make: Any = threading.Thread if kind == "threads" else fork.Process
    fillers = [
        make(target=fill_in_order, args=(store, marker, list(range(200))[:: 1 if marker % 2 else -1]))
        for marker in (1, 2, 3)
    ]
    for filler in fillers:
        filler.start()
    for filler in fillers:
        filler.join(180)
    assert (store.states == ROW).all()
    assert_whole(store)


def test_a_sample_that_fits_nowhere_is_left_to_the_source() -> None:
    store = new_store(4, arena_bytes=60)
    states = [store.put(index, sample(index, 1)) for index in range(4)]
    assert states.count(ROW) < 4
    assert store.get(0)[1] == "1"
    assert store.put(0, sample(0, 2)) == ROW
    assert store.get(0)[1] == "1"


def test_odd_samples_are_kept_whole() -> None:
    store = new_store(3)
    assert store.put(1, {"another": [1, 2]}) == ODD
    assert store.states.tolist() == [MISSING, ODD, MISSING]
    assert store.get(1) == {"another": [1, 2]}


def test_what_was_never_written_takes_no_memory() -> None:
    store = new_store(50_000, arena_bytes=1 << 34)
    store.put(7, sample(7, 1))
    assert os.fstat(store.region.fd).st_blocks * 512 < 1 << 20
    assert store.region.size > 1 << 34
