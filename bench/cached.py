"""The gain and cost of `CachedDataset` in torch's own loader, without workers, against the plain dataset.

Each pair is timed in turns within one run, by the CPU time of the one thread that does all the work, which
other processes disturb less than wall time. It prints the median ratio and its quartiles.

- small rows: `randn(10000, 100)`, batches of 64, shuffled, as a tensor and as a filled cache
- samples that cost 1 ms of CPU: the first epoch of a lazy cache, a cache with a budget of 0, and a transform
  of that cost behind the cache
- memory: how much the process grows, without the data

    python bench/cached.py [--quick]
"""

from __future__ import annotations

import argparse
import gc
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from unstarve import CachedDataset
from unstarve.native import why_not_native

ROWS = torch.randn(10_000, 100)


class Rows(Dataset[Any]):
    def __len__(self) -> int:
        return len(ROWS)

    def __getitem__(self, index: int) -> torch.Tensor:
        return ROWS[index]


class Costly(Dataset[Any]):
    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return work(torch.full((3, 32, 32), index % 256, dtype=torch.uint8)), index


def work(value: Any) -> Any:
    end_s = time.thread_time() + 0.001
    while time.thread_time() < end_s:
        pass
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    repeats = 7 if parser.parse_args().quick else 41
    print(
        f"torch {torch.__version__}, Python {platform.python_version()}, native: {why_not_native() or 'yes'}"
    )

    tensor, filled = CachedDataset(ROWS), CachedDataset(Rows())
    report("small rows, a tensor", Rows, lambda: tensor, 64, repeats)
    report("small rows, filled", Rows, lambda: filled, 64, repeats)
    few = max(3, repeats // 5)
    behind = CachedDataset(torch.zeros(256, 3, 32, 32), transform=work)
    report("1 ms per sample, lazy, 1st epoch", Costly, lazy, 32, few)
    report("1 ms per sample, nothing fits", Costly, nothing, 32, few)
    report("1 ms per sample, behind the cache", Costly, lambda: behind, 32, few)

    for name, data in (("a tensor", ROWS), ("filled", Rows())):
        print(f"{'memory, ' + name:34} {grown_mb(data):6.2f} MB for {ROWS.nbytes / 1e6:.2f} MB of data")


def lazy() -> CachedDataset:
    return CachedDataset(Costly(), fill="lazy")


def nothing() -> CachedDataset:
    return CachedDataset(Costly(), budget=0, over_budget="partial")


Make = Callable[[], Dataset[Any]]


def report(name: str, stock: Make, ours: Make, batch_size: int, repeats: int) -> None:
    ratios = [epoch_s(stock(), batch_size) / epoch_s(ours(), batch_size) for _ in range(repeats)]
    low, _, high = statistics.quantiles(ratios, n=4)
    print(f"{name:34} {statistics.median(ratios):6.2f}× the speed ({low:.2f}–{high:.2f})")


def epoch_s(dataset: Dataset[Any], batch_size: int) -> float:
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True)
    begin_s = time.thread_time()
    for _ in loader:
        pass
    return time.thread_time() - begin_s


def grown_mb(data: Any) -> float:
    epoch_s(CachedDataset(torch.randn(1000, 100)), 64)
    gc.collect()
    before = shared_bytes()
    cached = CachedDataset(data)
    epoch_s(cached, 64)
    gc.collect()
    return (shared_bytes() - before) / 1e6


def shared_bytes() -> int:
    """Proportional set size of this process."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


if __name__ == "__main__":
    main()
