"""Datasets to prefetch from, and helpers that wait for threads."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset

WAIT_S = 5e-3  # far more than making a sample computes, also on a busy machine
"""Long enough to be distinguished from computing."""


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until something holds that threads bring about."""
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(1e-3)


def no_threads() -> bool:
    return not [t for t in threading.enumerate() if t.name.startswith("unstarve-prefetch")]


def compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Waiting(Dataset[torch.Tensor]):
    """Waits for each sample and notes which thread fetched it; sample `bad` cannot be read."""

    def __init__(self, count: int = 40, bad: int | None = None, wait_s: float = WAIT_S) -> None:
        self.count, self.bad, self.wait_s = count, bad, wait_s
        self.fetched: list[int] = []
        self.threads: set[int] = set()
        self.classes = ["cat", "dog"]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        self.fetched.append(index)
        self.threads.add(threading.get_ident())
        time.sleep(self.wait_s)
        if index == self.bad:
            raise OSError(f"sample {index} is damaged")
        return torch.tensor([index, os.getpid() * 0])


class Computing(Waiting):
    """Keeps a CPU busy for each sample."""

    def __getitem__(self, index: int) -> torch.Tensor:
        self.threads.add(threading.get_ident())
        compute(self.wait_s)
        return torch.tensor([index, 0])


class Awaited(Waiting):
    """Samples are coroutines. `most` is how many were awaited at once."""

    def __init__(self, count: int = 40, bad: int | None = None) -> None:
        super().__init__(count, bad)
        self.running = self.most = 0
        self.loops: set[int] = set()

    async def __getitem__(self, index: int) -> torch.Tensor:  # type: ignore[override] # what is under test
        self.fetched.append(index)
        self.loops.add(id(asyncio.get_running_loop()))
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(self.wait_s)
        self.running -= 1
        if index == self.bad:
            raise OSError(f"sample {index} is damaged")
        return torch.tensor([index, 0])


class GivesCoroutines(Dataset[Any]):
    """A plain method that returns an awaitable."""

    def __init__(self, inner: Awaited) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> Any:
        return self.inner[index]


class Batches(Waiting):
    """Fetches whole batches in its own way and notes them."""

    def __init__(self, count: int = 40) -> None:
        super().__init__(count)
        self.asked: list[list[int]] = []

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        self.asked.append(list(indices))
        time.sleep(self.wait_s)
        return [torch.tensor([index, 0]) for index in indices]


class Stream(IterableDataset[torch.Tensor]):
    """Yields numbers, forever if `count` is None, and notes which thread made them; fails after `bad`."""

    def __init__(self, count: int | None = 40, bad: int | None = None) -> None:
        self.count, self.bad = count, bad
        self.make_s = 1e-4
        self.made = 0
        self.threads: list[int] = []

    def __iter__(self) -> Iterator[torch.Tensor]:
        number = 0
        while number != self.count:
            if number == self.bad:
                raise OSError(f"item {number} is damaged")
            self.threads.append(threading.get_ident())
            time.sleep(self.make_s)
            self.made += 1
            yield torch.tensor(number)
            number += 1
