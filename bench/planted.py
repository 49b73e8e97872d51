"""For the scripts of advice.py: datasets with one planted cost each, steps, and a loop that times itself.

A script prints its own speed: from the sixth batch of the first counted epoch to the end of the last one,
starts of epochs included, which is what a report calls throughput.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset
from zoo.work import augment

__all__ = [
    "CORES", "MARK", "Cold", "Computed", "DataLoader", "Dataset", "Fields", "Items", "Large",
    "Latency", "Path", "Tail", "TensorDataset", "accelerator", "fit", "model", "np", "os",
    "random", "time", "torch",
]  # fmt: skip

CORES = len(os.sched_getaffinity(0))
MARK = "planted-speed "
WARMUP_STEPS = 5


class Items(Dataset[Any]):
    """Sample `index` is ``load(index)``."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return self.load(index)

    def load(self, index: int) -> Any:
        return torch.full((64,), float(index))


class Latency(Items):
    """Every sample waits for a server."""

    def __init__(self, count: int, ms: float) -> None:
        super().__init__(count)
        self.ms = ms

    def load(self, index: int) -> Any:
        time.sleep(self.ms / 1e3)
        return super().load(index)


class Computed(Items):
    """Every sample takes a fixed amount of CPU work: `units` of about 0.1 ms."""

    def __init__(self, count: int, units: int, work: Callable[[], object] = augment) -> None:
        super().__init__(count)
        self.units, self.work = units, work

    def load(self, index: int) -> Any:
        for _ in range(self.units):
            self.work()
        return super().load(index)


class Tail(Items):
    """One sample in `every` waits much longer than the others."""

    def __init__(self, count: int, ms: float, late_ms: float, every: int) -> None:
        super().__init__(count)
        self.ms, self.late_ms, self.every = ms, late_ms, every

    def load(self, index: int) -> Any:
        late = random.Random(index).randrange(self.every) == 0
        time.sleep((self.late_ms if late else self.ms) / 1e3)
        return super().load(index)


class Large(Items):
    """Samples already in memory, of many bytes."""

    def __init__(self, count: int, floats: int) -> None:
        super().__init__(count)
        self.row = torch.randn(floats)

    def load(self, index: int) -> Any:
        return self.row


class Fields(Items):
    """Samples of many small tensors."""

    def __init__(self, count: int, fields: int) -> None:
        super().__init__(count)
        self.rows = [torch.full((4,), float(number)) for number in range(fields)]

    def load(self, index: int) -> Any:
        return self.rows


class Cold(Items):
    """Every sample is a few random blocks of one large file, read past the page cache."""

    def __init__(self, name: str, count: int, blocks: int, block: int = 1 << 16) -> None:
        super().__init__(count)
        self.name, self.blocks, self.block = name, blocks, block
        if not Path(name).exists():
            piece = os.urandom(1 << 20)
            with Path(name).open("wb") as file:
                for _ in range(256):
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())

    def load(self, index: int) -> Any:
        places = random.Random(index)
        with Path(self.name).open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            for _ in range(self.blocks):
                file.seek(places.randrange((256 << 20) // self.block) * self.block)
                file.read(self.block)
        return super().load(index)


def accelerator(ms: float) -> Callable[[Any], None]:
    """A step that waits for a device, as ``loss.item()`` would."""
    return lambda batch: time.sleep(ms / 1e3)


def model(units: int, threads: int | None = None) -> Callable[[Any], None]:
    """A step that computes on the CPU: `units` of one update each, with torch's threads or `threads`."""
    if threads is not None:
        torch.set_num_threads(threads)
    net = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    inputs = torch.randn(256, 512)

    def step(batch: Any) -> None:
        for _ in range(units):
            optimizer.zero_grad()
            net(inputs).square().mean().backward()
            optimizer.step()

    return step


def fit(loader: Iterable[Any], step: Callable[[Any], None], epochs: int = 1, warm_epochs: int = 0) -> None:
    """Train, and print steps per second; `warm_epochs` are not counted, such as those that fill a cache."""
    marks: list[tuple[int, float]] = []
    steps = 0
    for epoch in range(epochs):
        for batch in loader:
            if epoch >= warm_epochs:
                steps += 1
                if steps == WARMUP_STEPS + 1:
                    marks.append((steps, time.perf_counter()))
            step(batch)
    (first, begin_s), end_s = marks[0], time.perf_counter()
    print(MARK + json.dumps({"per_s": (steps - first + 1) / (end_s - begin_s)}), flush=True)
