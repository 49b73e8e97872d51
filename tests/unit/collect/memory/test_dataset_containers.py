"""The containers of a dataset are counted, never kept alive and never copied."""

from __future__ import annotations

import functools
import gc
from collections import deque
from typing import Any

import torch
from torch.utils.data import ConcatDataset, Dataset, Subset

from unstarve.collect.dataset_weight import largest_container
from unstarve.collect.memory.dataset_containers import DatasetContainers, container_sizes


class Caching(Dataset[Any]):
    def __init__(self) -> None:
        self.cache: dict[int, int] = {}
        self.recent: deque[int] = deque(maxlen=5)
        self.rows = torch.zeros(3)
        self.name = "x"

    @functools.cache  # noqa: B019  # what is tested
    def decoded(self, index: int) -> int:
        return index

    def __getitem__(self, index: int) -> int:
        self.cache[index] = index
        return self.decoded(index)


def test_attributes_and_function_caches_are_counted_through_wrappers() -> None:
    Caching.decoded.cache_clear()
    dataset = Subset(Caching(), [1, 2])
    assert [dataset[0], dataset[1]] == [1, 2]
    assert dict(container_sizes(dataset)) == {
        "self.indices": 2,
        "self.dataset.cache": 2,
        "Caching.decoded": 2,
    }


class Guarded(dict[str, int]):
    """Runs code of the user wherever it is touched."""

    def __len__(self) -> int:
        raise AssertionError("the user's own code ran")

    __iter__ = __len__  # type: ignore[assignment]  # of any kind


class Lazy(Dataset[Any]):
    def __init__(self) -> None:
        self.seen = Guarded(a=1)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("the user's own code ran")


def test_no_code_of_the_user_runs() -> None:
    concatenated = ConcatDataset.__new__(ConcatDataset)
    concatenated.datasets = [Lazy(), Subset(Lazy(), [0])]
    assert dict(container_sizes(concatenated)) == {
        "self.datasets": 2,
        "self.datasets[0].seen": 1,
        "self.datasets[1].indices": 1,
        "self.datasets[1].dataset.seen": 1,
    }


def test_only_changes_are_told() -> None:
    dataset, watch = Caching(), DatasetContainers()
    assert watch.changed() is None
    watch.watch(dataset)
    first = watch.changed()
    assert first is not None
    assert first["self.cache"] == 0
    assert watch.changed() is None
    dataset[7]
    assert (watch.changed() or {})["self.cache"] == 1


def test_the_dataset_is_not_kept_and_a_list_is_left_alone() -> None:
    watch = DatasetContainers()
    watch.watch([1, 2, 3])
    assert watch.changed() is None
    dataset = Dataset()  # type: ignore[var-annotated]  # of nothing
    watch.watch(dataset)
    assert watch.changed() is None  # no containers, as before
    del dataset
    gc.collect()
    assert watch.changed() is None


class Holding:
    def __init__(self, **held: Any) -> None:
        vars(self).update(held)

    def __getitem__(self, index: int) -> int:
        return index


def test_the_largest_container_is_that_of_python_objects() -> None:
    samples = [(f"/data/class_{i % 10}/{i:08}.jpg", i) for i in range(20_000)]
    found = largest_container(Holding(samples=samples, rows=torch.zeros(10**7), few=[1, 2]))
    assert found is not None
    assert (found.name, found.kind, found.items, found.count) == ("self.samples", "list", "tuple", 20_000)
    assert 2_000_000 < found.bytes < 6_000_000


def test_it_is_found_in_a_wrapped_dataset_and_in_a_plain_list() -> None:
    names = {i: str(i) * 20 for i in range(20_000)}
    found = largest_container(Subset(Holding(names=names), range(3)))  # type: ignore[arg-type]  # like one
    assert found is not None
    assert (found.name, found.kind, found.items) == ("self.dataset.names", "dict", "str")
    plain = largest_container([str(i) * 20 for i in range(20_000)])
    assert plain is not None
    assert plain.name == "self"


def test_tensors_in_a_list_do_not_count_with_their_elements() -> None:
    assert largest_container(Holding(rows=[torch.zeros(100_000) for _ in range(20)])) is None
