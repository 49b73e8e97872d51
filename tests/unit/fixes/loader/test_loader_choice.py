"""Which engine runs a loader: what each refuses, and what the loader says about it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset, default_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from row_datasets import COUNT, Rows, X
from same_batches import assert_same
from unstarve import DataLoader


class Counting(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(5))


class OwnIterator(DataLoader[Any]):
    def _get_iterator(self) -> Any:
        return iter(["mine"])


class Changed(TensorDataset):
    def __getitem__(self, index: Any) -> Any:
        return tuple(-tensor for tensor in super().__getitem__(index))


class ChangedRows(Rows):
    def __getitem__(self, index: Any) -> Any:
        return -super().__getitem__(index)


class OwnMeaning(Dataset[Any]):
    """A method of that name which has nothing to do with us."""

    def rows(self) -> Any:
        return X

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return -X[index]


def grad() -> torch.Tensor:
    return torch.ones(5, 2, requires_grad=True)


REFUSALS: dict[str, tuple[Callable[[], Any], str]] = {
    "iterable": (lambda: DataLoader(Counting()), "IterableDataset"),
    "samples": (lambda: DataLoader(X, batch_size=None), "batch_size=None"),
    "collate": (lambda: DataLoader(X, collate_fn=list), "collate_fn list"),
    "worker_init_fn": (lambda: DataLoader(X, num_workers=1, worker_init_fn=print), "worker_init_fn"),
    "own iterator": (lambda: OwnIterator(X), "overrides _get_iterator"),
    "changed samples": (lambda: DataLoader(Changed(X)), "Changed does not hold its samples as rows"),
    "changed rows": (lambda: DataLoader(ChangedRows(X)), "overrides __getitem__"),
    "another meaning": (lambda: DataLoader(OwnMeaning()), "rows_are_samples = True"),
    "no rows now": (lambda: DataLoader(Rows(None)), "rows() is None at present"),
    "other lengths": (lambda: DataLoader(Rows(X[:5])), "one row for each sample"),
    "no tensors": (lambda: DataLoader(Rows((X, "a"))), "hold str, not plain tensors"),
    "nothing in it": (lambda: DataLoader(Rows(())), "hold no tensors"),
    "own container": (lambda: DataLoader(Rows(OrderedDict(x=X))), "treats OrderedDict"),
    "parameters": (lambda: DataLoader(Rows(torch.nn.Parameter(X))), "hold Parameter"),
    "gradients": (lambda: DataLoader(grad()), "require gradients"),
    "not contiguous": (lambda: DataLoader(X.transpose(1, 2)), "not C-contiguous"),
    "conjugated": (lambda: DataLoader(X.to(torch.complex64).conj()), "conjugated"),
    "sparse": (lambda: DataLoader(Rows(torch.eye(COUNT).to_sparse())), "not rows of plain memory"),
    "elsewhere": (lambda: DataLoader(Rows(X.to("meta"))), "are on meta"),
    "odd subset": (lambda: DataLoader(Subset(X, ["a", "b"])), "indices of a Subset"),  # type: ignore[list-item]
    "subset outside": (lambda: DataLoader(Subset(Subset(X, [1]), [0, 1])), "indices of a Subset"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_done_faster_is_left_to_torch_and_says_why(case: str) -> None:
    make, reason = REFUSALS[case]
    loader = make()
    assert loader.engine == ("ring" if loader.num_workers else "stock")
    assert reason in loader.explain()
    for engine in ("views", "gather"):
        assert f"not {engine}: " in loader.explain()


def test_what_is_left_to_torch_is_what_torch_gives() -> None:
    assert list(OwnIterator(X)) == ["mine"]
    assert next(iter(DataLoader(Counting(), batch_size=2))).tolist() == [0, 1]
    assert_same(list(DataLoader(Changed(X), batch_size=23)), [[-X]])
    assert_same(list(DataLoader(OwnMeaning(), batch_size=23)), [-X])
    batch = next(iter(DataLoader(grad(), batch_size=2)))
    assert batch.grad_fn is not None
    with pytest.raises(AssertionError, match="timeout"):
        iter(DataLoader(X, timeout=1))


def test_the_indices_of_a_subset_are_not_looked_at_where_there_are_no_rows() -> None:
    class Millions(list[int]):
        def __getitem__(self, index: Any) -> Any:
            raise AssertionError("it would take its time in every epoch")

        __iter__ = __array__ = __getitem__

    assert DataLoader(Subset([1, 2], Millions([1]))).engine == "stock"


def test_a_collate_function_of_the_users_is_not_mistaken_for_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert DataLoader(X, collate_fn=default_collate).engine == "views"
    monkeypatch.setitem(default_collate_fn_map, torch.Tensor, lambda batch, *, collate_fn_map: "taught")
    loader = DataLoader(X, batch_size=23)
    assert "a custom function is registered" in loader.explain()
    assert list(loader) == ["taught"]


def test_one_engine_can_be_asked_for() -> None:
    assert DataLoader(X, engine="gather").explain() == "gather: requested"
    assert DataLoader(X, engine="stock", shuffle=True).engine == "stock"
    assert_same(list(DataLoader(X, engine="gather", batch_size=4)), list(DataLoader(X, batch_size=4)))
    with pytest.raises(
        ValueError, match=r"engine must be one of auto, views, gather, threads, ring, stock, got 'fast'$"
    ):
        DataLoader(X, engine="fast")
    with pytest.raises(ValueError, match=r"got 'rign'; did you mean 'ring'\?$"):
        DataLoader(X, engine="rign")
    with pytest.raises(ValueError, match="engine 'views' cannot run this loader: the order is not the"):
        DataLoader(X, engine="views", shuffle=True)
    with pytest.raises(ValueError, match=r"engine 'gather' cannot run this loader: collate_fn list"):
        DataLoader(X, engine="gather", collate_fn=list)
    with pytest.raises(ValueError, match="copy=True rules that out"):
        DataLoader(X, engine="views", copy=True)


def test_it_says_what_it_does_and_why() -> None:
    assert DataLoader(X).explain().startswith("views: the samples are in memory in the requested order")
    explained = DataLoader(X, shuffle=True, num_workers=2).explain().splitlines()
    assert explained[0].startswith("gather: the samples are rows in memory")
    assert explained[0].endswith("made without workers")
    assert explained[1] == "  not views: the order is not the dataset's"
