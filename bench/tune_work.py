"""The workloads of bench/tune.py: datasets that are slow in one way each, and a step."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from zoo.data import Items, Slow
from zoo.disk import MIB, write_file
from zoo.work import Device

from unstarve.model import LoaderSettings


@dataclass(frozen=True)
class Work:
    """A training: samples, batch size, step, and the user's own settings."""

    name: str
    load: Callable[[int], Any]
    own: LoaderSettings
    batch: int = 16
    step_ms: float = 2.0

    @property
    def data(self) -> Items:
        return Items(1_000_000, self.load)

    @property
    def step(self) -> Device:
        return Device(self.step_ms)


@dataclass(frozen=True)
class Tail:
    """A sample that occasionally takes long."""

    usual_ms: float
    slow_ms: float
    every: int

    def __call__(self, index: int) -> torch.Tensor:
        slow = random.Random(index).randrange(self.every) == 0
        time.sleep((self.slow_ms if slow else self.usual_ms) / 1e3)
        return torch.zeros(64)


@dataclass(frozen=True)
class Large:
    """A sample of new memory that is cheap to make and expensive to hand over."""

    floats: int

    def __call__(self, index: int) -> torch.Tensor:
        return torch.full((self.floats,), float(index))


class Cold:
    """A sample read from the disk at a random offset of a large file, never from the page cache."""

    def __init__(self, size: int = 256 * MIB, block: int = 256 * 1024) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._name = str(Path(self._folder.name) / "samples.bin")
        self._size, self._block = size, block
        write_file(self._name, size)

    def __call__(self, index: int) -> torch.Tensor:
        offset = random.Random(index).randrange(self._size // self._block) * self._block
        descriptor = os.open(self._name, os.O_RDONLY)
        try:
            data = os.pread(descriptor, self._block, offset)
            os.posix_fadvise(descriptor, offset, self._block, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
        return torch.frombuffer(bytearray(data[:1024]), dtype=torch.uint8)


def works() -> list[Work]:
    """All of them; the disk's file is written when its first sample is read."""
    two = LoaderSettings(2, 2)
    return [
        Work("cpu", Slow(cpu_ms=0.5), two),
        Work("cpu, no workers", Slow(cpu_ms=0.5), LoaderSettings(0)),
        Work("cpu, crowded", Slow(cpu_ms=0.5), LoaderSettings(12, 2)),
        Work("latency", Slow(sleep_ms=10), two),
        Work("disk", Cold(), two, batch=32),
        Work("mixed", Slow(cpu_ms=0.1, sleep_ms=2), two),
        Work("tail", Tail(0.5, 60, every=100), two),
        Work("tiny", Slow(), LoaderSettings(4, 2), step_ms=0.2),
        Work("hand-off", Large(64 * 1024), two, batch=32),
        Work("fine", Slow(cpu_ms=0.05), LoaderSettings(1, 2), step_ms=10),
    ]
