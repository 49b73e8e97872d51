"""Samples that are work for a CPU."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.utils.data import DataLoader

from zoo.case import Case
from zoo.data import Items, Slow, Stream, fit
from zoo.truth import Truth
from zoo.work import Device, Model, augment, burn, decompress, parse


def python(truth: Truth, **options: Any) -> None:
    """Decoding in plain Python, in the training process or in one worker."""
    fit(truth, DataLoader(Items(560, Slow(cpu_ms=4, chunk=parse)), batch_size=8, **options), Model(8))


def numpy(truth: Truth) -> None:
    """A transform in NumPy, one worker."""
    data = Items(560, Slow(cpu_ms=5, chunk=augment))
    fit(truth, DataLoader(data, batch_size=8, num_workers=1), Device(12))


def packed_stream(truth: Truth) -> None:
    """A compressed stream, one worker."""
    data = Stream(560, Slow(cpu_ms=4, chunk=decompress))
    fit(truth, DataLoader(data, batch_size=8, num_workers=1), Device(10))


class Pooled(Items):
    """Samples decoded by two threads of their own."""

    pool: ThreadPoolExecutor | None = None

    def __getitems__(self, indices: list[int]) -> list[Any]:
        self.pool = self.pool or ThreadPoolExecutor(2)
        return list(self.pool.map(self.load, indices))


def thread_pool(truth: Truth, **options: Any) -> None:
    """A worker, or a training process, that only waits for its threads."""
    data = Pooled(560, Slow(cpu_ms=4, chunk=decompress))
    fit(truth, DataLoader(data, batch_size=8, **options), Device(8))


class Large:
    """A sample of half a megabyte."""

    def __call__(self, index: int) -> torch.Tensor:
        burn(0.8, parse)
        return torch.ones(128 * 1024)


def large_batches(truth: Truth) -> None:
    """One busy worker: handing 4 MB over takes a while, and it makes the next batch meanwhile."""
    fit(truth, DataLoader(Items(800, Large()), batch_size=8, num_workers=1), Device(2))


SPAWNED = {"num_workers": 1, "multiprocessing_context": "spawn"}
CASES = (
    Case("cpu-python", python, "starved", "cpu", quick=True),
    Case("cpu-python-spawned", python, "starved", "cpu", SPAWNED),
    Case("cpu-numpy", numpy, "starved", "cpu"),
    Case("cpu-packed-stream", packed_stream, "starved", "cpu"),
    Case("cpu-thread-pool", thread_pool, "starved", "cpu", {"num_workers": 1}),
    Case("cpu-thread-pool-alone", thread_pool, "starved", "cpu"),
    Case("cpu-large-batches", large_batches, "starved", "cpu"),
)
