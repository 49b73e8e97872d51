"""Tensors, arrays and lists are datasets as they are; what cannot be cached is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset, default_collate

from cached_sources import Point, Source, X, Y
from same_batches import assert_same
from unstarve import CachedDataset
from unstarve.errors import CacheError, UsageError
from unstarve.fixes.memory.store import sample_layout as rows_module
from unstarve.native import native, why_not_native

needs_native = pytest.mark.skipif(native() is None, reason=f"native gather: {why_not_native()}")


@pytest.fixture(params=[pytest.param("native", marks=needs_native), "twin"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "twin":
        monkeypatch.setattr(rows_module, "native", lambda: None)


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize(
    ("data", "sample"),
    [
        (X, X[2]),
        ((X, Y), (X[2], Y[2])),
        ([X, Y], [X[2], Y[2]]),
        ({"x": X, "y": (Y, Y.double())}, {"x": X[2], "y": (Y[2], Y[2].double())}),
        (X.numpy(), X.numpy()[2]),
        ((X.numpy(), Y.numpy()), (X.numpy()[2], Y.numpy()[2])),
        ({"x": X.numpy(), "y": Y}, {"x": X.numpy()[2], "y": Y[2]}),
        (TensorDataset(X, Y), (X[2], Y[2])),
        (TensorDataset(X), (X[2],)),
        (Point(X, Y), Point(X[2], Y[2])),
        (X.bfloat16(), X.bfloat16()[2]),
    ],
)
def test_tensors_and_arrays_are_datasets(data: Any, sample: Any) -> None:
    cached = CachedDataset(data)
    assert len(cached) == 6
    assert_same(cached[2], sample)
    batch = default_collate(cached.__getitems__([2, 2]))
    assert_same(batch, default_collate([sample, sample]))
    assert (cached.rows() is None) == isinstance(data, Point)


def test_tensors_and_arrays_are_used_where_they_lie() -> None:
    array = np.zeros((4, 2), np.float32)
    x, y = CachedDataset((X, array)).rows() if len(X) == 4 else CachedDataset((X[:4], array)).rows()
    assert x.data_ptr() == X.data_ptr()
    assert y.data_ptr() == array.ctypes.data


def test_what_is_not_contiguous_is_made_so_once() -> None:
    cached = CachedDataset((X.T.contiguous().T, np.asfortranarray(X.numpy())))
    assert all(column.is_contiguous() for column in cached.rows())
    assert_same(cached[1], (X[1], X.numpy()[1]))


def test_an_array_that_may_not_be_written_is_fine() -> None:
    array = np.arange(12.0).reshape(6, 2)
    array.flags.writeable = False
    cached = CachedDataset(array)
    assert cached[1].flags.writeable
    assert torch.equal(
        default_collate(cached.__getitems__([0, 1])), torch.tensor([[0.0, 1.0], [2.0, 3.0]]).double()
    )


def test_a_tensor_may_move_to_shared_memory_behind_our_back() -> None:
    tensor = torch.arange(200_000.0).reshape(-1, 2)
    cached = CachedDataset(tensor)
    tensor.share_memory_()
    junk = [torch.full((100_000, 2), -1.0) for _ in range(3)]
    assert cached[3].tolist() == [6.0, 7.0]
    assert default_collate(cached.__getitems__([3, 99_999])).tolist() == [[6.0, 7.0], [199_998.0, 199_999.0]]
    del junk


def test_lists_of_samples_are_datasets() -> None:
    samples = [(torch.tensor([i]), i) for i in range(5)]
    assert_same(list(CachedDataset(samples)), samples)
    assert_same(list(CachedDataset(np.array(["a", "b"]))), list(np.array(["a", "b"])))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X, Y[:3]), "the same length"),
        ((), "nothing to cache"),
        ((X, "text"), "got str"),
        ({"a": np.array(["x"])}, "array of <U1"),
        (torch.tensor(1.0), "no dimensions"),
        ([X[0]] * 20, "list of 20 tensors"),
        (3, "int cannot be cached"),
        (iter([1]), "cannot be cached"),
    ],
)
def test_what_cannot_be_cached_is_refused(data: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CachedDataset(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (X.to_sparse(), "to_dense"),
        (X.clone().requires_grad_(), "detach"),
        (torch.empty(3, 2, device="meta"), "on meta"),
        (Source(lambda i: torch.ones(2, requires_grad=True)), "sample 0: .*detach"),
        (Source(lambda i: lambda: i), "sample 0 cannot be cached: .*pickle"),
    ],
)
def test_tensors_that_are_no_plain_memory_are_refused(data: Any, message: str) -> None:
    with pytest.raises(CacheError, match=message):
        CachedDataset(data)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


class NoLength(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index


def test_streams_and_datasets_without_length_are_refused() -> None:
    with pytest.raises(UsageError, match="Stream is an IterableDataset"):
        CachedDataset(Stream())
    with pytest.raises(UsageError, match="NoLength cannot be cached without a length"):
        CachedDataset(NoLength())


@pytest.mark.parametrize(
    "arguments",
    [{"fill": "soon"}, {"over_budget": "maybe"}, {"budget": "8 parsecs"}, {"budget": -1}, {"budget": 1.5}],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(arguments))):
        CachedDataset(X, **arguments)
