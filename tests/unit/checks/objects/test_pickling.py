"""What cannot be sent to workers that do not fork."""

from __future__ import annotations

import functools
import multiprocessing
import threading
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers.checked import findings, ids
from torch.utils.data import DataLoader, Dataset, default_collate

from unstarve.checks.objects.pickling import pickled_bytes


class Holder(Dataset[Any]):
    def __init__(self, **parts: Any) -> None:
        vars(self).update(parts)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return index


class LeavesOut(Holder):
    """Its lock stays behind."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "lock": None}


def scaled(samples: list[Any], by: float) -> Any:
    return default_collate(samples) * by


def spawned(dataset: Dataset[Any], **settings: Any) -> DataLoader[Any]:
    return DataLoader(dataset, num_workers=1, **{"multiprocessing_context": "spawn", **settings})


def local_class() -> Any:
    class Inside:
        pass

    return Inside()


@pytest.mark.parametrize(
    ("parts", "path", "kind"),
    [
        ({"transform": lambda x: x}, "train_set.transform", "a lambda"),
        ({"steps": [abs, lambda x: x]}, "train_set.steps[1]", "a lambda"),
        ({"inner": Holder(lock=threading.Lock())}, "train_set.inner.lock", "a _thread.lock"),
        ({"rows": (i for i in range(3))}, "train_set.rows", "a generator"),
        ({"part": local_class()}, "train_set.part", "of a class inside local_class()"),
        ({"f": functools.partial(lambda x: x, 1)}, "train_set.f.func", "a lambda"),
    ],
)
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_the_part_that_cannot_be_pickled_is_named(parts: Any, path: str, kind: str, method: str) -> None:
    found = findings(spawned(Holder(name="data", **parts), multiprocessing_context=method))
    assert [one.id for one in found] == ["not-picklable"]
    assert found[0].message == f"{path} is {kind}, which cannot be pickled for 1 worker started by {method}."


def test_functions_of_the_loader_are_looked_at() -> None:
    def collate(samples: list[Any]) -> Any:
        return samples

    (found,) = findings(spawned(Holder(), collate_fn=collate))
    assert (
        "train_loader.collate_fn is a function inside test_functions_of_the_loader_are_looked_at()"
        in found.message
    )
    assert "def collate(...)" in found.fix
    assert ids(spawned(Holder(), worker_init_fn=lambda _: None)) == ["not-picklable"]


def test_only_parts_that_are_pickled_are_blamed() -> None:
    (found,) = findings(spawned(LeavesOut(lock=threading.Lock(), other=lambda: 0)))
    assert found.message.startswith("train_set.other is a lambda")


def test_all_parts_are_named_at_once() -> None:
    found = findings(spawned(Holder(one=lambda: 1, two=[lambda: 2], three=threading.Lock())))
    assert [one.message.split()[0] for one in found] == [
        "train_set.one",
        "train_set.two[0]",
        "train_set.three",
    ]


def test_what_workers_can_receive_is_left_alone() -> None:
    context = multiprocessing.get_context("spawn")
    healthy = Holder(count=context.Value("i", 0), tensor=torch.zeros(3), array=np.zeros(3), names=["a", "b"])
    assert ids(spawned(healthy, collate_fn=functools.partial(scaled, by=2.0))) == []
    assert ids(spawned(LeavesOut(lock=threading.Lock()))) == []
    assert ids(DataLoader(Holder(f=lambda: 0), num_workers=1, multiprocessing_context="fork")) == []
    assert ids(DataLoader(Holder(f=lambda: 0))) == []


def test_looking_does_not_move_tensors_to_shared_memory() -> None:
    tensor = torch.zeros(1000)
    assert isinstance(pickled_bytes(Holder(tensor=tensor)), int)
    assert not tensor.is_shared()  # type: ignore[no-untyped-call]  # untyped in torch


def test_arrays_count_with_all_their_bytes() -> None:
    size = pickled_bytes(Holder(array=np.zeros(100_000)))
    assert isinstance(size, int)
    assert 800_000 <= size < 801_000
