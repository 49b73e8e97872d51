"""to_device: the loader's batches on a device. Its copies on a stream need a GPU; the rest is tested here."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, TensorDataset

import unstarve
from unstarve.errors import UsageError
from unstarve.fixes.loader.to_device import batches_ahead

Pair = namedtuple("Pair", ["x", "y"])
META = "meta"
"""A device that every torch has: tensors on it have no memory."""


def test_batches_are_the_loaders_and_its_attributes_stay() -> None:
    loader = DataLoader(TensorDataset(torch.arange(10)), batch_size=4)
    moved = unstarve.to_device(loader, "cpu")
    assert [batch[0].tolist() for batch in moved] == [batch[0].tolist() for batch in loader]
    assert len(moved) == 3
    assert moved.batch_size == 4
    assert isinstance(moved, DataLoader)


def test_every_tensor_moves_however_nested_and_nothing_else() -> None:
    packed = pack_sequence([torch.arange(3.0), torch.arange(2.0)])
    batch = {
        "pair": Pair(torch.ones(2), "text"),
        "list": [torch.zeros(1), (torch.ones(1), 5, None)],
        "ordered": OrderedDict(a=torch.ones(1)),
        "packed": packed,
    }
    (moved,) = unstarve.to_device([batch], META)
    assert moved["pair"].x.device.type == META
    assert moved["pair"].y == "text"
    assert moved["list"][0].device.type == moved["list"][1][0].device.type == META
    assert moved["list"][1][1:] == (5, None)
    assert type(moved["ordered"]) is OrderedDict
    assert moved["packed"].data.device.type == META


def moves(log: list[str]) -> Callable[[Any], Callable[[], Any]]:
    def move(batch: int) -> Callable[[], int]:
        log.append(f"begin {batch}")

        def finish() -> int:
            log.append(f"finish {batch}")
            return batch

        return finish

    return move


def test_with_one_ahead_the_next_copy_begins_before_a_batch_is_given() -> None:
    log: list[str] = []
    for batch in batches_ahead(iter([0, 1]), moves(log), 1):
        log += [f"step {batch}"]
    assert log == ["begin 0", "begin 1", "finish 0", "step 0", "finish 1", "step 1"]


def test_without_any_ahead_the_loader_is_asked_when_training_asks() -> None:
    log: list[str] = []
    for batch in batches_ahead(iter([0, 1]), moves(log), 0):
        log += [f"step {batch}"]
    assert log == ["begin 0", "finish 0", "step 0", "begin 1", "finish 1", "step 1"]


def test_an_exception_comes_after_the_batches_before_it() -> None:
    def breaks() -> Iterator[int]:
        yield 0
        raise OSError("the disk is gone")

    given = batches_ahead(breaks(), moves([]), 2)
    assert next(given) == 0
    with pytest.raises(OSError, match="the disk is gone"):
        next(given)


def test_only_loaders_with_workers_are_asked_ahead() -> None:
    data = TensorDataset(torch.arange(4))
    assert unstarve.to_device(DataLoader(data, num_workers=2), "cpu").ahead == 1
    assert unstarve.to_device(DataLoader(data), "cpu").ahead == 0
    assert unstarve.to_device([1, 2], "cpu").ahead == 0
    assert unstarve.to_device([1, 2], "cpu", ahead=3).ahead == 3


def test_wrong_arguments_say_what_is_right() -> None:
    with pytest.raises(UsageError, match="a loader must be iterable, got 3"):
        unstarve.to_device(3, "cpu")  # type: ignore[arg-type] # that is the point
    with pytest.raises(UsageError, match="to_device needs a device, such as 'cuda', got 'gpu'"):
        unstarve.to_device([], "gpu")
    with pytest.raises(UsageError, match="ahead must be >= 0, got -1"):
        unstarve.to_device([], "cpu", ahead=-1)
