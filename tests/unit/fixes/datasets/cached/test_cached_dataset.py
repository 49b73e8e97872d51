"""Samples and batches are what the source's were, whatever a sample consists of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, default_collate

from cached_sources import COLLATED, MADE, Source, image
from same_batches import assert_same
from unstarve import CachedDataset
from unstarve.fixes.memory.store import sample_layout as rows_module
from unstarve.fixes.samples.built_batch import Batched
from unstarve.native import native, why_not_native

needs_native = pytest.mark.skipif(native() is None, reason=f"native gather: {why_not_native()}")


@pytest.fixture(params=[pytest.param("native", marks=needs_native), "twin"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "twin":
        monkeypatch.setattr(rows_module, "native", lambda: None)


@pytest.mark.parametrize("fill", ["now", "lazy"])
@pytest.mark.parametrize("kind", MADE)
def test_a_sample_comes_back_as_it_was(kind: str, fill: Any) -> None:
    make = MADE[kind]
    cached = CachedDataset(Source(make), fill=fill)
    assert len(cached) == 12
    for _ in range(2):
        for index in (0, 7, 11, 3):
            assert_same(cached[index], make(index), strides=False)
    assert_same(cached[-1], make(11), strides=False)
    assert_same(cached[np.int32(2)], make(2), strides=False)
    assert_same(cached[torch.tensor(2)], make(2), strides=False)


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("kind", COLLATED)
def test_a_batch_is_what_default_collate_makes(kind: str) -> None:
    make = COLLATED[kind]
    cached = CachedDataset(Source(make))
    for indices in ([3, 0, 11, 3], [5], [-1, 2]):
        assert_same(
            default_collate(cached.__getitems__(indices)), default_collate([make(i % 12) for i in indices])
        )


@pytest.mark.parametrize("kind", MADE)
def test_a_collate_function_of_ones_own_sees_samples(kind: str) -> None:
    make = MADE[kind]
    batches = list(DataLoader(CachedDataset(Source(make)), batch_size=5, collate_fn=list))
    expected = [[make(i) for i in chunk] for chunk in (range(5), range(5, 10), range(10, 12))]
    assert_same(batches, expected, strides=False)


@pytest.mark.parametrize("kind", ["tensor", "array", "pair", "list", "dict", "nested", "scalars"])
def test_batches_are_gathered_where_samples_are_alike(kind: str) -> None:
    batch = CachedDataset(Source(COLLATED[kind])).__getitems__([4, 2])
    assert isinstance(batch, Batched)
    assert default_collate(batch) is batch.whole


@pytest.mark.parametrize("kind", ["tensor", "pair", "dict", "ragged", "late oddity"])
@pytest.mark.parametrize("fill", ["now", "lazy"])
def test_each_sample_is_read_once(kind: str, fill: Any) -> None:
    source = Source(MADE[kind])
    cached = CachedDataset(source, fill=fill)
    if fill == "lazy":
        assert len(source.asked) == 3
    for _ in range(3):
        assert len(list(DataLoader(cached, shuffle=True, batch_size=None))) == 12
    assert sorted(source.asked) == list(range(12))


def test_lazily_filled_batches_become_rows_once_all_are_there() -> None:
    cached = CachedDataset(Source(COLLATED["pair"]), fill="lazy")
    assert cached.rows() is None
    for _ in range(2):
        for batch, plain in zip(
            DataLoader(cached, batch_size=4), DataLoader(Source(COLLATED["pair"]), batch_size=4), strict=True
        ):
            assert_same(batch, plain)
    images, labels = cached.rows()
    assert images.shape == (12, 3, 4, 4)
    assert torch.equal(labels, torch.arange(12))


def test_rows_are_the_contiguous_columns_in_the_structure_of_a_sample() -> None:
    rows = CachedDataset(Source(lambda i: {"x": (image(i), i), "y": np.float32(i)})).rows()
    assert list(rows) == ["x", "y"]
    assert type(rows["x"]) is tuple
    assert torch.equal(rows["x"][0], torch.stack([image(i) for i in range(12)]))
    assert rows["x"][0].is_contiguous()
    assert rows["y"].dtype == torch.float32


@pytest.mark.parametrize("kind", ["dict", "ragged", "late oddity", "none", "namedtuple", "bare text"])
def test_there_are_no_rows_where_a_sample_is_more_than_a_row(kind: str) -> None:
    assert CachedDataset(Source(MADE[kind])).rows() is None


def test_there_are_no_rows_behind_a_transform() -> None:
    assert CachedDataset(torch.randn(4, 2), transform=torch.neg).rows() is None


def test_a_transform_runs_at_each_access_and_not_in_the_cache() -> None:
    source = Source(COLLATED["pair"])
    calls: list[int] = []

    def brighter(sample: tuple[torch.Tensor, int]) -> tuple[torch.Tensor, int]:
        calls.append(sample[1])
        return sample[0].add_(len(calls)), sample[1]

    cached = CachedDataset(source, transform=brighter)
    assert calls == []
    assert torch.equal(cached[3][0], image(3) + 1)
    assert torch.equal(cached[3][0], image(3) + 2)
    images, labels = next(iter(DataLoader(cached, batch_size=2)))
    assert torch.equal(images, torch.stack([image(0) + 3, image(1) + 4]))
    assert labels.tolist() == [0, 1]


@pytest.mark.parametrize("kind", ["tensor", "array", "pair", "dict", "ragged arrays"])
def test_changing_a_sample_or_a_batch_does_not_change_the_cache(kind: str) -> None:
    make = MADE[kind]
    cached = CachedDataset(Source(make))

    def spoil(part: Any) -> None:
        if isinstance(part, (torch.Tensor, np.ndarray)):
            part *= 0
        elif isinstance(part, (tuple, list)):
            for each in part:
                spoil(each)
        elif isinstance(part, dict):
            spoil(list(part.values()))
            part.clear()

    for _ in range(2):
        spoil(cached[4])
        spoil(list(cached.__getitems__([4, 5])))
    assert_same(cached[4], make(4))


def test_a_dataset_may_return_the_same_memory_each_time() -> None:
    buffer, numbers = torch.empty(3), np.empty(2)

    def reuse(index: int) -> tuple[torch.Tensor, Any]:
        numbers[:] = index
        return buffer.fill_(index), numbers

    cached = CachedDataset(Source(reuse))
    assert torch.equal(cached.rows()[0], torch.arange(12.0)[:, None].expand(12, 3))
    assert [each[1][0] for each in cached] == list(range(12))


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("fill", ["now", "lazy"])
def test_small_datasets(count: int, fill: Any) -> None:
    cached = CachedDataset(Source(COLLATED["pair"], count), fill=fill)
    assert len(cached) == count
    assert_same(list(cached), [COLLATED["pair"](i) for i in range(count)])
    assert len(list(DataLoader(cached, batch_size=2))) == (count + 1) // 2
    with pytest.raises(IndexError, match="out of bounds"):
        cached[count]


def test_indices_out_of_bounds_are_refused() -> None:
    cached = CachedDataset(torch.zeros(3, 2))
    for index in (3, -4):
        with pytest.raises(IndexError, match="out of bounds"):
            cached[index]
        with pytest.raises(IndexError, match="out of bounds"):
            cached.__getitems__([0, index])
