"""The cost of the hand-off of a batch from a worker: torch's own loader against the ring engine, one worker.

Both take turns on the same dataset, whose own work is negligible; medians of the rounds are printed. Every
batch is new memory: torch sends a tensor that it has sent before without copying it, which no training set
does.

    python bench/handoff.py [NAME…] [--rounds N]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset

from unstarve import DataLoader

MB = 1 << 20
FLOAT_BYTES = 4


class Fresh(Dataset[Any]):
    """Whole batches, new each time."""

    def __init__(self, count: int, sizes: dict[str, int]) -> None:
        self.count, self.sizes = count, sizes

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return {name: torch.empty(size) for name, size in self.sizes.items()}


class Rows(Dataset[Any]):
    """Ready samples that are collated."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.row = count, torch.randn(size)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return {"x": self.row, "y": index}


@dataclass(frozen=True)
class Case:
    dataset: Callable[[], Dataset[Any]]
    batch_size: int | None
    warm_up: int


CASES = {
    "1 KB": Case(lambda: Fresh(1500, {"x": 256}), None, 200),
    "1 MB": Case(lambda: Fresh(800, {"x": MB // FLOAT_BYTES, "y": 8}), None, 100),
    "20 MB": Case(lambda: Fresh(100, {"x": 20 * MB // FLOAT_BYTES, "y": 8}), None, 20),
    "150 tensors": Case(lambda: Fresh(100, {f"field {i}": 437 for i in range(150)}), None, 20),
    "1 MB collated": Case(lambda: Rows(8 * 500, MB // 8 // FLOAT_BYTES), 8, 100),
    "20 MB collated": Case(lambda: Rows(64 * 100, 20 * MB // 64 // FLOAT_BYTES), 64, 20),
}


def batch_ms(loader: Any, warm_up: int) -> float:
    iterator = iter(loader)
    for _ in range(warm_up):
        next(iterator)
    begin = time.perf_counter()
    count = sum(1 for _ in iterator)
    return (time.perf_counter() - begin) / count * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(CASES)}; all without one")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.names or CASES:
        case = CASES[name]
        dataset, common = case.dataset(), {"batch_size": case.batch_size, "num_workers": 1}
        stock, ring = [], []
        for _ in range(options.rounds):
            stock.append(batch_ms(TorchLoader(dataset, **common), case.warm_up))
            ring.append(batch_ms(DataLoader(dataset, engine="ring", **common), case.warm_up))
        faster = statistics.median(s / r for s, r in zip(stock, ring, strict=True))
        print(
            f"{name:15} torch {statistics.median(stock):8.3f} ms   ring {statistics.median(ring):8.3f} ms"
            f"   {faster:5.1f}×",
            flush=True,
        )


if __name__ == "__main__":
    main()
