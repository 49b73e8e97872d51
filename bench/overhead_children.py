"""The processes that overhead.py starts: each prints what it measured as JSON.

python bench/overhead_children.py KIND NUMBER…
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from unstarve.intervals import turn_order

SIZE = 8


class Switched:
    """An iterator from which unstarve can be removed, and put back, between two batches."""

    def __init__(self, workers: int, batches: int) -> None:
        rows = torch.zeros((batches + 100) * SIZE, 16)
        data = TensorDataset(rows, rows[:, 0])
        self._iterator: Any = iter(DataLoader(data, batch_size=SIZE, num_workers=workers))
        self._recorded_next = type(self._iterator).__next__
        self._bare_next = self._recorded_next.__wrapped__
        self._workers = workers
        own = self._iterator.__dict__
        self._tap = own["_unstarve_tap"]
        if workers:
            queue = own["_worker_result_queue"]
            self._places = [(queue.__dict__, "get"), (queue.__dict__, "_recv_bytes")]
        else:
            self._places = [(own["_dataset_fetcher"].__dict__, "_unstarve_probe")]
        self._things = [place[name] for place, name in self._places]
        self.set(True)
        for _ in range(50):
            next(self._iterator)

    def set(self, on: bool) -> Callable[[], Any]:
        """Switch unstarve on or off; return the function that gives the next batch."""
        own = self._iterator.__dict__
        if on:
            own["_unstarve_tap"] = self._tap
            for (place, name), thing in zip(self._places, self._things, strict=True):
                place[name] = thing
            return functools.partial(self._recorded_next, self._iterator)
        own.pop("_unstarve_tap", None)
        for place, name in self._places:
            place.pop(name, None)
        if self._workers:
            queue = own["_worker_result_queue"]
            queue._recv_bytes = queue._reader.recv_bytes
        return functools.partial(self._bare_next, self._iterator)


def in_turns(steps: int, measure: Callable[[bool], float]) -> list[float]:
    """Return the microseconds without unstarve and those it adds, from nanoseconds measured in turns."""
    pairs = []
    for count in range(steps):
        spent = {on: measure(on) for on in turn_order((False, True), count)}
        pairs.append((spent[False], spent[True]))
    bare = usual([off for off, _ in pairs])
    return [bare / 1e3, usual([on - off for off, on in pairs]) / 1e3]


def next_us(workers: int, step_us: int, steps: int) -> list[float]:
    """Return the training thread's CPU microseconds in a bare ``next()``, and those that recording adds.

    Measured in stretches: recording counts the time between two recorded batches as a step, so the first
    batches after unrecorded ones differ from the others.
    """
    settling, stretch = 2, 3
    switched = Switched(workers, 2 * steps * (settling + stretch) // stretch)
    x = torch.zeros(512, 16)

    def spent_ns(on: bool) -> float:
        advance = switched.set(on)
        spent = []
        for _ in range(settling + stretch):
            until = time.perf_counter_ns() + step_us * 1000
            while time.perf_counter_ns() < until:
                x.sum()
            begin = time.thread_time_ns()
            advance()
            spent.append(time.thread_time_ns() - begin)
        return usual(spent[settling:])

    return in_turns(steps // stretch, spent_ns)


def train_us(workers: int, rounds: int, steps: int) -> list[float]:
    """Return the microseconds of a bare computing step and those that unstarve adds, in stretches."""
    from unstarve.collect.recorder import recorder

    stretch = 20
    switched = Switched(workers, 2 * steps)
    owner = recorder()
    assert owner is not None
    sampler = owner._sampler
    assert sampler is not None
    x = torch.rand(64, 64)

    def ns_a_step(on: bool) -> float:
        advance = switched.set(on)
        sampler.resume() if on else sampler.pause()
        begin = unhindered_ns()
        for _ in range(stretch):
            advance()
            for _ in range(rounds):
                x.matmul(x)
        return (unhindered_ns() - begin) / stretch

    return in_turns(steps // stretch, ns_a_step)


class Computed(Dataset[torch.Tensor]):
    """Samples that take a worker some time."""

    def __init__(self, batches: int) -> None:
        self.batches = batches
        self.weights = torch.rand(64, 64)

    def __len__(self) -> int:
        return self.batches * SIZE

    def __getitem__(self, index: int) -> torch.Tensor:
        sample = self.weights
        for _ in range(5):
            sample = sample.matmul(self.weights)
        return sample


def crowd_us(workers: int, rounds: int, steps: int) -> list[float]:
    """Return microseconds a step with many workers: of an empty step, of one that computes, of CPU time."""
    loader = DataLoader(Computed(steps), batch_size=SIZE, num_workers=workers, persistent_workers=True)
    x = torch.rand(64, 64)
    took, before_s = [], cpu_s()
    for per_step in (0, 0, rounds):  # the first epoch starts the workers
        begin = time.perf_counter()
        for _ in loader:
            for _ in range(per_step):
                x.matmul(x)
        took.append((time.perf_counter() - begin) / steps * 1e6)
    del loader  # its workers end: their CPU time counts from now on
    return [*took[1:], (cpu_s() - before_s) / (3 * steps) * 1e6]


def cpu_s() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


def unhindered_ns() -> int:
    """Return wall time minus the time this thread waited for a core."""
    queued = int(Path("/proc/thread-self/schedstat").read_text().split()[1])
    return time.perf_counter_ns() - queued


def usual(values: Sequence[float], left_out: float = 0.05) -> float:
    """Return the mean without the extremes on both sides, which other processes cause."""
    cut = int(left_out * len(values))
    return statistics.mean(sorted(values)[cut : len(values) - cut])


class Clock(Dataset[int]):
    """The first sample of every batch is the CPU time of the thread that makes it."""

    def __init__(self, batches: int, size: int) -> None:
        self.batches, self.size = batches, size

    def __len__(self) -> int:
        return self.batches * self.size

    def __getitem__(self, index: int) -> int:
        return 0 if index % self.size else time.thread_time_ns()


def worker_us(size: int, batches: int) -> float:
    """CPU of a worker's main thread from batch to batch."""
    loader = DataLoader(Clock(batches, size), batch_size=size, num_workers=1)
    clocks = [int(batch[0]) for batch in loader][50:]
    return usual([b - a for a, b in pairwise(clocks)]) / 1e3


def sampler_ms() -> list[float]:
    """Return the sampler thread's CPU milliseconds per second: in the first second, and later."""
    from unstarve.collect.recorder import recorder

    next(iter(DataLoader(torch.zeros(8, 1), batch_size=SIZE)))
    owner = recorder()
    assert owner is not None
    sampler = owner._sampler
    assert sampler is not None
    told = []
    for seconds in (1, 1, 2):
        begin, before_s = time.perf_counter(), sampler._own_cpu_s
        while time.perf_counter() < begin + seconds:
            sum(range(100))
        told.append((sampler._own_cpu_s - before_s) * 1e3 / seconds)
    return [told[0], told[-1]]


def rounds_of(step_s: float) -> int:
    """Return how many multiplications make a step of that length."""
    x, count = torch.rand(64, 64), 0
    until = time.thread_time() + 1
    while time.thread_time() < until:
        for _ in range(10):
            x.matmul(x)
        count += 10
    return round(count * step_s)


CHILDREN: dict[str, Callable[..., float | list[float]]] = {
    "next": next_us,
    "worker": worker_us,
    "sampler": sampler_ms,
    "train": train_us,
    "crowd": crowd_us,
}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(CHILDREN[sys.argv[1]](*map(int, sys.argv[2:]))))
