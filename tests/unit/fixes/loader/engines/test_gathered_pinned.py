"""A thread makes pinned batches ahead, and is never seen: not in the order, the draws, or after the end."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import RandomSampler, TensorDataset

from same_batches import assert_same, assert_same_epochs
from unstarve import DataLoader
from unstarve.fixes.loader.engines import gathered_batches as pinned
from unstarve.fixes.loader.engines import memory_engines
from unstarve.fixes.loader.engines.gathered_batches import empty_like_rows
from unstarve.fixes.loader.engines.torch_epoch import BegunEpoch

COUNT = 23
DATA = TensorDataset(torch.arange(COUNT * 2.0).reshape(COUNT, 2), torch.arange(COUNT))


@pytest.fixture(autouse=True)
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is nothing to pin for, ordinary memory stands in: all else is as with a GPU."""
    if torch.cuda.is_available():
        return
    begin = memory_engines.begin

    def pinning(loader: Any) -> BegunEpoch:
        begun = begin(loader)
        begun._pin_memory = True
        return begun

    monkeypatch.setattr(memory_engines, "begin", pinning)
    monkeypatch.setattr(memory_engines, "empty_pinned", empty_like_rows)
    monkeypatch.setattr(
        "unstarve.fixes.loader.engines.gathered_batches.pin_memory", lambda batch, device: batch
    )


def makers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "unstarve-pin"]


def loader_of(**settings: Any) -> DataLoader[Any]:
    pin = torch.cuda.is_available()
    return DataLoader(DATA, **{"batch_size": 4, "engine": "gather", "pin_memory": pin} | settings)


ORDERS: dict[str, Any] = {
    "in order": dict,
    "shuffled": lambda: {"shuffle": True},
    "generator": lambda: {"shuffle": True, "generator": torch.Generator().manual_seed(1)},
    "more, generator": lambda: {
        "sampler": RandomSampler(range(COUNT), num_samples=61, generator=torch.Generator().manual_seed(1))
    },
    "own sampler": lambda: {"sampler": [3, 1, 4, 1, 5, 9, 2, 6]},
}


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("order", ORDERS)
def test_batches_and_draws_are_torchs(order: str, workers: int) -> None:
    settings: Any = {"num_workers": workers, "batch_size": 4}
    assert_same_epochs(
        lambda: TorchDataLoader(DATA, **settings, **ORDERS[order]()),
        lambda: loader_of(**settings, **ORDERS[order]()),
        take=4,
    )
    assert makers() == []


def test_batches_are_made_before_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    enough = threading.Event()
    allocate = memory_engines.empty_pinned

    def counting(leaf: torch.Tensor, count: int) -> torch.Tensor:
        made.append(count)
        if len(made) >= 2 * (1 + pinned.DEPTH):  # two leaves a batch
            enough.set()
        return allocate(leaf, count)

    monkeypatch.setattr(memory_engines, "empty_pinned", counting)
    iterator = iter(loader_of(shuffle=True))
    next(iterator)
    assert enough.wait(180)
    assert len(made) == 2 * (1 + pinned.DEPTH)


def test_without_workers_a_sampler_is_not_asked_ahead() -> None:
    asked: list[int] = []

    def asking() -> Any:
        for index in range(COUNT):
            asked.append(index)
            yield index

    iterator = iter(loader_of(sampler=asking()))
    next(iterator)
    assert asked == [0, 1, 2, 3]


def test_the_thread_ends_with_the_epoch_and_with_the_iterator() -> None:
    iterator = iter(loader_of())
    assert len(list(iterator)) == 6
    assert makers() == []
    assert next(iterator, "over") == "over"
    iterator = iter(loader_of(shuffle=True))
    next(iterator)
    assert len(makers()) == 1
    del iterator
    gc.collect()
    assert makers() == []


def test_an_exception_comes_where_the_batch_would_have() -> None:
    batches = iter(loader_of(sampler=[0, 1, 2, 3, 4, 99, 5, 6, 7, 8, 9, 10], num_workers=1))
    assert_same(next(batches)[1], torch.arange(4))
    with pytest.raises(IndexError, match="out of bounds"):
        next(batches)
    assert next(batches)[1].tolist() == [7, 8, 9, 10]


def test_a_program_that_ends_inside_an_epoch_ends_at_once() -> None:
    script = """
import torch
from unstarve import DataLoader
from unstarve.fixes.loader.engines import memory_engines as engine
from unstarve.fixes.loader.engines.gathered_batches import empty_like_rows
begin = engine.begin
def pinning(loader):
    begun = begin(loader)
    begun._pin_memory = True
    return begun
engine.begin, engine.empty_pinned = pinning, empty_like_rows
kept = iter(DataLoader(torch.zeros(500, 1000), batch_size=100, shuffle=True))
next(kept)
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=180, check=True
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_batches_are_pinned_and_survive_copies_in_flight() -> None:
    data = torch.arange(2_000_000, dtype=torch.int64).reshape(2000, 1000)
    loader = DataLoader(data, batch_size=100, shuffle=True, pin_memory=True)
    assert loader.engine == "gather"
    copies, sums = [], []
    for batch in loader:
        assert batch.is_pinned()
        sums.append(batch.sum())
        copies.append(batch.to("cuda", non_blocking=True))
    torch.cuda.synchronize()
    assert [int(copy.sum()) for copy in copies] == [int(total) for total in sums]
    assert DataLoader(data, pin_memory=True).engine == "gather"
    assert DataLoader(data.pin_memory(), pin_memory=True).engine == "views"
