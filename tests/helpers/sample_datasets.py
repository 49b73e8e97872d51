"""Datasets that spawned workers and other programs can import."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset, default_collate


class Counted(Dataset[Any]):
    """Samples that cost a little, and in shared memory how often each was read."""

    def __init__(self, count: int, size: int = 16, seconds: float = 0.0) -> None:
        self.count = count
        self.size = size
        self.seconds = seconds
        self.reads = torch.zeros(count, dtype=torch.int64).share_memory_()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, str]:
        self.reads[index] += 1
        time.sleep(self.seconds)
        return torch.full((self.size,), index, dtype=torch.int64), index, f"sample {index}"


class Logged(Dataset[Any]):
    """Samples that cost a little; each read adds a line to a file, so other programs can count them."""

    def __init__(self, log: str | Path, count: int, seconds: float = 0.0) -> None:
        self._log = Path(log)
        self.count = count
        self.seconds = seconds

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with self._log.open("a") as file:
            file.write(f"{index}\n")
        time.sleep(self.seconds)
        return torch.full((1000,), index, dtype=torch.int64), index


def private_bytes() -> int:
    """Private memory of this process."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def collect_no_garbage(worker: int) -> None:
    """In a forked worker: looking for garbage would make all that it inherited its own."""
    gc.disable()


def with_memory(samples: Any) -> tuple[Any, int]:
    """Collate samples, and tell how much memory the process that does it has for itself."""
    return default_collate(samples), private_bytes()
