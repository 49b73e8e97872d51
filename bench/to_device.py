"""A training on a GPU whose batches lie in host memory: `unstarve.to_device` against a plain loop.

    pageable    batches as a loader without `pin_memory` gives them
    pinned      batches in page-locked memory

Each cell is what a step takes, relative to the same step on a batch that is on the GPU already; the step
computes for about `--step` milliseconds and does not wait for the GPU. A cell is the median of `--rounds`
rounds; in a round, all ways of a row take turns. Below them is the time in which the host gets a batch.

    .to(device)       batch.to(device, non_blocking=True) in the loop, on the stream that trains
    to_device         unstarve.to_device(loader, device, ahead=0): asked when training asks
    one ahead         the same with ahead=1, the default for a DataLoader with workers

    python bench/to_device.py [--mb 1 10 100 300] [--device cpu]    # cpu: only a trial
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

import unstarve
from unstarve.intervals import turn_order

WIDTH = 4096
BATCHES = 4
"""Batches in memory, handed out in turn: more than the CPU's caches hold, if they are large."""
MB = 10**6


@dataclass(frozen=True)
class Measured:
    step_s: float
    host_s: float
    """Spent in the loader and in what brings a batch to the device."""


class InMemory:
    """Batches that are ready; a new pass over them takes no time."""

    def __init__(self, batches: list[torch.Tensor], steps: int) -> None:
        self._batches = batches
        self._steps = steps

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (self._batches[number % len(self._batches)] for number in range(self._steps))


class Training:
    """Products of matrices that take about as long as a step should, and a look at the batch."""

    def __init__(self, device: torch.device, step_s: float) -> None:
        self.device = device
        width = WIDTH if device.type == "cuda" else WIDTH // 16
        self._weights = torch.randn(width, width, device=device, dtype=torch.bfloat16)
        self._seen = torch.zeros((), device=device)
        self._products = 8
        for _ in range(2):  # the first time warms up
            since_s = self.finished_s()
            self._compute()
            each_s = (self.finished_s() - since_s) / self._products
        self._products = max(round(step_s / each_s), 1)

    def step(self, batch: torch.Tensor) -> None:
        self._seen += batch.flatten()[-1]
        self._compute()

    def _compute(self) -> None:
        found = self._weights
        for _ in range(self._products):
            found = found @ self._weights

    def finished_s(self) -> float:
        """Wait until the device has finished; return the time."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def measure(loader: Iterable[Any], training: Training, steps: int) -> Measured:
    since_s, host_s = training.finished_s(), 0.0
    batches = iter(loader)
    for _ in range(steps):
        asked_s = time.perf_counter()
        batch = next(batches)
        host_s += time.perf_counter() - asked_s
        training.step(batch)
    return Measured((training.finished_s() - since_s) / steps, host_s / steps)


def moved(loader: InMemory, device: torch.device) -> Iterator[torch.Tensor]:
    """Yield batches as a plain loop moves them."""
    for batch in loader:
        yield batch.to(device, non_blocking=True)


WAYS: dict[str, Callable[[InMemory, torch.device], Iterable[Any]]] = {
    ".to(device)": moved,
    "to_device": lambda loader, device: unstarve.to_device(loader, device, ahead=0),
    "one ahead": lambda loader, device: unstarve.to_device(loader, device, ahead=1),
}


def row(training: Training, mb: int, *, pinned: bool, rounds: int, seconds: float) -> Iterator[str]:
    """Yield the lines about batches of this size."""
    size = mb * MB // 4
    host = [torch.ones(size, pin_memory=pinned) for _ in range(BATCHES)]
    there = [batch.to(training.device) for batch in host[:1]]
    once = measure(moved(InMemory(host, 3), training.device), training, 3)
    steps = max(round(seconds / once.step_s), 4)
    loader = InMemory(host, steps)
    found: dict[str, list[tuple[float, Measured]]] = {name: [] for name in WAYS}
    for number in range(rounds + 1):
        alone = measure(InMemory(there, steps), training, steps)
        for name in turn_order(tuple(WAYS), number):
            taken = measure(WAYS[name](loader, training.device), training, steps)
            if number:  # the first round warms up
                found[name].append((taken.step_s / alone.step_s, taken))
    memory = "pinned" if pinned else "pageable"
    ratios = [statistics.median(ratio for ratio, _ in some) for some in found.values()]
    hosts = [statistics.median(1e3 * taken.host_s for _, taken in some) for some in found.values()]
    yield f"| {mb} MB, {memory} | " + " | ".join(f"{ratio:.2f}×" for ratio in ratios) + " |"
    yield "| host, a batch | " + " | ".join(f"{ms:.2f} ms" for ms in hosts) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--mb", nargs="+", type=int, default=[1, 10, 100, 300], metavar="N")
    parser.add_argument("--step", type=float, default=20.0, metavar="MS")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--seconds", type=float, default=0.4, metavar="S", help="of a cell in a round")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a trial")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("bench/to_device.py: no CUDA device, nothing to measure")
        return
    device = torch.device(options.device)
    place = torch.cuda.get_device_name() if options.device == "cuda" else "CPU, as a trial"
    print(f"{place}, torch {torch.__version__}, Python {platform.python_version()}, {time.strftime('%F')}\n")
    print("| a step, relative to one on a batch that is there | " + " | ".join(WAYS) + " |")
    print("|---" * (1 + len(WAYS)) + "|", flush=True)
    training = Training(device, options.step / 1e3)
    for mb in options.mb:
        for pinned in (False, True) if device.type == "cuda" else (False,):
            for line in row(training, mb, pinned=pinned, rounds=options.rounds, seconds=options.seconds):
                print(line, flush=True)


if __name__ == "__main__":
    main()
