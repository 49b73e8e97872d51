"""Sequential batches are slices of the dataset, which autograd takes for tensors of their own."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Subset, TensorDataset

from unstarve import DataLoader

X = torch.arange(200.0).reshape(40, 5)
Y = torch.arange(40)


def test_batches_lie_in_the_dataset() -> None:
    loader = DataLoader(TensorDataset(X, Y), batch_size=6)
    assert loader.engine == "views"
    for number, (x, y) in enumerate(loader):
        assert x.data_ptr() == X[number * 6 :].data_ptr()
        assert y.data_ptr() == Y[number * 6 :].data_ptr()


def test_a_subset_in_one_piece_is_a_slice_too() -> None:
    for indices in (range(10, 30), list(range(10, 30)), torch.arange(10, 30)):
        loader = DataLoader(Subset(X, indices), batch_size=6)  # type: ignore[arg-type]
        assert loader.engine == "views"
        assert next(iter(loader)).data_ptr() == X[10:].data_ptr()
        assert torch.equal(torch.cat(list(loader)), X[10:30])
    assert DataLoader(Subset(X, [10, 12, 11, 13])).engine == "gather"
    assert DataLoader(Subset(X, [10, 10])).engine == "gather"


@pytest.mark.parametrize("batch_size", [1, 7, 40, 41])
@pytest.mark.parametrize("drop_last", [False, True])
def test_more_batches_than_are_made_at_once(batch_size: int, drop_last: bool) -> None:
    data = torch.arange(1000)
    settings: Any = {"batch_size": batch_size, "drop_last": drop_last}
    ours, theirs = list(DataLoader(data, **settings)), list(TorchDataLoader(data, **settings))
    assert [batch.tolist() for batch in ours] == [batch.tolist() for batch in theirs]


def test_copy_gives_batches_memory_of_their_own() -> None:
    data = X.clone()
    for batch in DataLoader(data, batch_size=6, copy=True):
        batch.zero_()
    assert torch.equal(data, X)


def test_whoever_changes_a_batch_is_told_that_the_dataset_changed() -> None:
    data = X.clone()
    iterator = iter(DataLoader(data, batch_size=20))
    next(iterator).add_(1)
    with pytest.warns(UserWarning, match=r"the dataset, whose memory it shares.*copy=True") as told:
        list(iterator)
    assert told[0].filename == __file__
    assert torch.equal(data[:20], X[:20] + 1)


def test_autograd_takes_a_batch_for_a_tensor_of_its_own() -> None:
    data = X.clone()
    weight = torch.ones(5, requires_grad=True)
    first, second = DataLoader(data, batch_size=20)
    loss = (first * weight).sum()
    second.requires_grad_()
    (second * weight).sum().backward()
    assert second.grad is not None
    with torch.no_grad():
        second.sub_(second.grad)  # does not count as a change of the first
    loss.backward()
    assert not data.requires_grad
    assert data.grad_fn is None
    assert all(batch._base is None and batch.is_leaf for batch in DataLoader(data, batch_size=20))


def test_tensors_of_inference_mode_are_copied() -> None:
    with torch.inference_mode():
        data = X.clone()
    loader = DataLoader(data, batch_size=20)
    assert loader.engine == "gather"
    assert "inference mode" in loader.explain()
    assert not next(iter(loader)).is_inference()


def test_slices_can_be_taken_in_inference_mode() -> None:
    with torch.inference_mode():
        assert torch.equal(torch.cat(list(DataLoader(X, batch_size=6))), X)


def test_an_iterator_that_is_let_go_lets_the_dataset_go() -> None:
    data = X.clone()
    gone = weakref.ref(data)
    iterator = iter(DataLoader(data, batch_size=6))
    next(iterator)
    del data, iterator
    gc.collect()
    assert gone() is None
