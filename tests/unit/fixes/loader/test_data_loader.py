"""The drop-in loader gives what torch's gives: same batches, order, draws, warnings and errors."""

from __future__ import annotations

import pickle
import warnings
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)
from torch.utils.data import (
    DataLoader as TorchDataLoader,
)
from torch.utils.data.dataloader import _BaseDataLoaderIter

from row_datasets import COUNT, Plain, Rows, X, Y
from same_batches import assert_same, assert_same_epochs
from unstarve import DataLoader

pytestmark = pytest.mark.usefixtures("implementation")

Point = namedtuple("Point", "x y")  # default_collate knows these by their fields


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(5)


DATASETS: dict[str, Callable[[], Any]] = {
    "tensor": lambda: X,
    "vector": lambda: Y,
    "TensorDataset": lambda: TensorDataset(X, Y),
    "one tensor": lambda: TensorDataset(X),
    "rows": lambda: Rows(X),
    "rows of a tuple": lambda: Rows((X, Y)),
    "rows of a list": lambda: Rows([X, Y]),
    "rows of a dict": lambda: Rows({"x": X, "y": Y}),
    "rows of a named tuple": lambda: Rows(Point(X, Y)),
    "rows of a tree": lambda: Rows({"x": (X, [Y, X]), "p": Point(Y, {"z": X})}),
    "rows without columns": lambda: TensorDataset(torch.empty(COUNT, 0), Y),
    "stack": lambda: StackDataset(X, TensorDataset(Y)),
    "named stack": lambda: StackDataset(x=X, y=Y),
    "contiguous subset": lambda: Subset(TensorDataset(X, Y), range(3, 20)),
    "listed subset": lambda: Subset(X, [5, 6, 7, 8, 9]),
    "scattered subset": lambda: Subset(TensorDataset(X, Y), [9, 3, 3, -1, 20, 7]),
    "strided subset": lambda: Subset(X, range(1, 22, 4)),
    "subset of a subset": lambda: Subset(Subset(X, [9, 3, 4, 5, 20, 7]), [1, 2, 3]),
    "ranges in a range": lambda: Subset(Subset(X, range(2, 20, 3)), range(1, 5)),
    "random split": lambda: random_split(TensorDataset(X, Y), [15, 8], generator=seeded())[0],
    "no rows": lambda: TensorDataset(torch.empty(0, 3)),
    "nothing known": lambda: Plain((X, Y)),
}

ORDERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "in order": lambda dataset: {},
    "in order, last dropped": lambda dataset: {"drop_last": True},
    "shuffled": lambda dataset: {"shuffle": True},
    "shuffled, last dropped": lambda dataset: {"shuffle": True, "drop_last": True},
    "shuffled, generator": lambda dataset: {"shuffle": True, "generator": seeded()},
    "RandomSampler of another": lambda dataset: {"sampler": RandomSampler(range(4), generator=seeded())},
    "more samples": lambda dataset: {"sampler": RandomSampler(dataset, num_samples=61)},
    "more samples, generator": lambda d: {"sampler": RandomSampler(d, num_samples=61, generator=seeded())},
    "with replacement": lambda d: {"sampler": RandomSampler(d, replacement=True, num_samples=70)},
    "subset sampler": lambda dataset: {"sampler": SubsetRandomSampler([3, 1, 4, 0])},
    "subset sampler of a tensor": lambda d: {"sampler": SubsetRandomSampler(torch.tensor([3, 1]))},  # type: ignore[arg-type]
    "weighted": lambda dataset: {"sampler": WeightedRandomSampler([1.0, 2.0, 3.0], 9)},
    "weighted, generator": lambda d: {"sampler": WeightedRandomSampler([1.0, 3.0], 9, generator=seeded())},
    "distributed": lambda d: {"sampler": DistributedSampler(d, num_replicas=2, rank=1)},
    "own sampler": lambda dataset: {"sampler": [4, 2, -1, 0, 0]},
    "numpy sampler": lambda dataset: {"sampler": np.array([4, 2, 0, 1], np.int32)},
    "tensor sampler": lambda dataset: {"sampler": torch.tensor([4, 2, 0, 1])},
    "own batches": lambda dataset: {"batch_sampler": [[0], [1, 2, 3], (2, 1), [4]]},
    "numpy batches": lambda d: {"batch_sampler": [np.array([0, 1]), torch.tensor([2, 3])]},
    "sampled batches": lambda d: {"batch_sampler": BatchSampler(RandomSampler(d), 3, drop_last=True)},
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dataset", ["TensorDataset", "tensor", "scattered subset", "nothing known"])
def test_every_order_is_torchs(dataset: str, order: str) -> None:
    def make(kind: Any) -> Any:
        made = DATASETS[dataset]()
        settings = ORDERS[order](made)
        return kind(made, **({"batch_size": 4} if "batch_sampler" not in settings else {}), **settings)

    assert_same_epochs(lambda: make(TorchDataLoader), lambda: make(DataLoader))
    assert (make(DataLoader).engine == "stock") == (dataset == "nothing known")
    assert len(make(DataLoader)) == len(make(TorchDataLoader))


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("dataset", DATASETS)
def test_every_dataset_gives_torchs_batches(dataset: str, shuffle: bool) -> None:
    if dataset == "no rows" and shuffle:
        pytest.skip("torch refuses to shuffle nothing")

    def make(kind: Any) -> Any:
        return kind(DATASETS[dataset](), batch_size=4, shuffle=shuffle)

    assert_same_epochs(lambda: make(TorchDataLoader), lambda: make(DataLoader))


@pytest.mark.parametrize("take", [0, 1, 3, 6])
@pytest.mark.parametrize("batch_size", [4, 23])
def test_an_epoch_that_is_broken_off_has_drawn_as_much_as_torchs(take: int, batch_size: int) -> None:
    def make(kind: Any) -> Any:
        return kind(X, batch_size=batch_size, shuffle=True, generator=seeded())

    assert_same_epochs(lambda: make(TorchDataLoader), lambda: make(DataLoader), take=take)


def test_an_endless_sampler_is_asked_for_no_more_than_the_batch_needs() -> None:
    asked = []

    def endless() -> Any:
        index = 0
        while True:
            asked.append(index)
            yield index % COUNT
            index += 1

    iterator = iter(DataLoader(X, batch_size=4, sampler=endless()))  # type: ignore[arg-type]
    assert asked == []
    next(iterator)
    assert asked == [0, 1, 2, 3]


def test_two_iterators_do_not_disturb_each_other() -> None:
    torch.manual_seed(0)
    theirs = list(zip(*[TorchDataLoader(X, batch_size=4, shuffle=True)] * 2, strict=True))
    torch.manual_seed(0)
    loader = DataLoader(X, batch_size=4, shuffle=True)
    assert_same([list(pair) for pair in zip(loader, loader, strict=True)], [list(pair) for pair in theirs])


@pytest.mark.parametrize("shuffle", [False, True])
def test_its_iterator_is_an_iterator_like_torchs(shuffle: bool) -> None:
    iterator = iter(DataLoader(X, batch_size=4, shuffle=shuffle))
    assert iter(iterator) is iterator
    assert len(iterator) == 6
    next(iterator)
    assert iterator._num_yielded == 1
    assert iterator._num_workers == 0
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = iterator.nothing_of_the_kind
    with pytest.raises(NotImplementedError, match="cannot be pickled"):
        pickle.dumps(iterator)
    assert len(list(iterator)) == 5
    assert next(iterator, "over") == "over"


def test_a_loader_can_be_pickled() -> None:
    loader = DataLoader(TensorDataset(X, Y), batch_size=4, copy=True)
    list(loader)
    copy = pickle.loads(pickle.dumps(loader))
    assert copy.engine == "gather"
    assert_same(list(copy), list(loader))


BAD_INDICES: dict[str, Any] = {
    "too large": [[0, 1], [2, COUNT]],
    "too small": [[0, -COUNT - 1]],
    "far too large": [[2**70]],
    "not a number": [["a"]],
    "a float": [[1.5]],
    "nothing": [[]],
    "None": [None],
}


def test_a_dataset_without_rows_has_no_first_one_either() -> None:
    with pytest.raises(IndexError) as theirs:
        list(TorchDataLoader(torch.empty(0, 3), batch_sampler=[[0]]))
    with pytest.raises(IndexError) as ours:
        list(DataLoader(torch.empty(0, 3), batch_sampler=[[0]]))
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("bad", BAD_INDICES)
@pytest.mark.parametrize("dataset", ["TensorDataset", "scattered subset", "rows of a dict"])
def test_a_bad_index_raises_what_torch_raises_when_torch_does(dataset: str, bad: str) -> None:
    def outcome(kind: Any) -> Any:
        batches = []
        try:
            for batch in kind(DATASETS[dataset](), batch_sampler=BAD_INDICES[bad]):
                batches.append(batch)  # noqa: PERF402 # what came before the exception counts
        except Exception as error:
            return batches, type(error), str(error)
        raise AssertionError("torch took it")

    theirs, ours = outcome(TorchDataLoader), outcome(DataLoader)
    assert_same(ours[0], theirs[0])
    assert ours[1:] == theirs[1:]


def test_truth_values_are_not_taken_for_indices() -> None:
    batches = [[torch.tensor(True)], [True], [torch.tensor([3])]]
    for indices in batches:
        theirs = next(iter(TorchDataLoader(X, batch_sampler=[indices])))  # type: ignore[list-item]
        assert_same(next(iter(DataLoader(X, batch_sampler=[indices]))), theirs)


def test_a_sampler_beyond_the_dataset_fails_where_torchs_loader_fails() -> None:
    for sampler in (SequentialSampler(range(30)), RandomSampler(range(30), generator=seeded())):
        loader = DataLoader(X, batch_size=4, sampler=sampler)
        assert loader.engine == "gather"
        with pytest.raises(IndexError, match="out of bounds"):
            list(loader)


BAD_ARGUMENTS: list[dict[str, Any]] = [
    {"num_workers": -1},
    {"timeout": -1},
    {"prefetch_factor": 2},
    {"persistent_workers": True},
    {"batch_size": 0},
    {"batch_size": 2.5},
    {"drop_last": True, "batch_size": None},
    {"shuffle": True, "sampler": [0]},
    {"batch_sampler": [[0]], "shuffle": True},
    {"multiprocessing_context": "fork"},
    {"no_such_argument": 1},
]


@pytest.mark.parametrize("arguments", BAD_ARGUMENTS, ids=str)
def test_bad_arguments_are_refused_as_torch_refuses_them(arguments: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)) as theirs:
        TorchDataLoader(X, **arguments)
    with pytest.raises(type(theirs.value)) as ours:
        DataLoader(X, **arguments)
    assert str(ours.value) == str(theirs.value)


def test_pinning_without_an_accelerator_warns_as_torch_does() -> None:
    if torch.accelerator.is_available():
        pytest.skip("needs a machine without an accelerator")
    with warnings.catch_warnings(record=True) as theirs:
        warnings.simplefilter("always")
        list(TorchDataLoader(X, pin_memory=True))
    for shuffle in (False, True):
        with warnings.catch_warnings(record=True) as ours:
            warnings.simplefilter("always")
            list(DataLoader(X, pin_memory=True, shuffle=shuffle))
        assert [str(w.message) for w in ours] == [str(w.message) for w in theirs]


@pytest.mark.parametrize("shuffle", [False, True])
def test_whoever_watches_torchs_iterators_sees_ours(shuffle: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    original = _BaseDataLoaderIter.__next__

    def watching(self: Any) -> Any:
        batch = original(self)
        seen.append((self._num_workers, batch))
        return batch

    monkeypatch.setattr(_BaseDataLoaderIter, "__next__", watching)
    batches = list(DataLoader(X, batch_size=4, shuffle=shuffle, num_workers=2))
    assert_same([batch for _, batch in seen], batches)
    assert {workers for workers, _ in seen} == {2}


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_profile_shows_the_wait_for_a_batch(shuffle: bool) -> None:
    loader = DataLoader(X, batch_size=6, shuffle=shuffle)
    iterator = iter(loader)
    next(iterator)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in iterator:
            pass
    names = [event.name for event in profile.events() if event.name.startswith("enumerate(DataLoader)#")]
    assert len(names) == 4  # the last finds the end
    assert all(name.endswith(".__next__") for name in names)
