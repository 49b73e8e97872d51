"""What a batch of small rows costs in `unstarve.DataLoader`, and what of it no loader could avoid.

    python bench/small_rows.py [--rounds 9]

The data are those of part `rows` of `unstarve bench`: 10,000 rows of 100 floats, batch 64, shuffled.

    torch      torch's loader
    ours       the same batches from `unstarve.DataLoader`
    begin      of that: `iter(loader)`, spread over the batches of the epoch
    order      torch's own draw of the order, spread over the batches of the epoch
    copy       64 rows into memory in use before, by the compiled function
    tensor     a tensor on memory that exists already, in a list, and its end
    least      order + copy + tensor

All take turns; medians of the rounds, in µs per batch.
"""

from __future__ import annotations

import argparse
import gc
import platform
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

import unstarve
from unstarve.benchmark.bench_plan import Sizes
from unstarve.benchmark.measure_ways import median_ratio, time_per_batch
from unstarve.fixes.samples.gather import gather

SIZES = Sizes()
BATCHES = -(-SIZES.rows // SIZES.row_batch)
REPEATS = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    pieces = pieces_of(torch.randn(SIZES.rows, SIZES.columns))
    found: dict[str, list[float]] = {name: [] for name in pieces}
    for _ in range(given.rounds):
        for name, measure in pieces.items():
            gc.collect()
            found[name].append(measure() * 1e6)
    us = {name: median(values) for name, values in found.items()}
    us["least"] = us["order"] + us["copy"] + us["tensor"]
    for name, value in us.items():
        print(f"{name:8} {value:8.3f}")
    print(f"\nours: {median_ratio(found['torch'], found['ours']):.0f} times as fast as torch's loader")
    print(f"the least: {us['torch'] / us['least']:.0f} times")
    print(f"{platform.platform()}, torch {torch.__version__}")


def pieces_of(rows: torch.Tensor) -> dict[str, Callable[[], float]]:
    """Return what to measure; each call returns the seconds per batch."""
    options: dict[str, Any] = {"batch_size": SIZES.row_batch, "shuffle": True}
    stock = DataLoader(TensorDataset(rows), **options)
    ours: Any = unstarve.DataLoader(TensorDataset(rows), **options)
    return {
        "torch": lambda: time_per_batch(stock, least_s=0.3),
        "ours": lambda: time_per_batch(ours, least_s=0.3),
        "begin": lambda: begin_s(ours) / BATCHES,
        "order": lambda: seconds(draw, REPEATS // BATCHES) / BATCHES,
        "copy": lambda: copy_s(rows),
        "tensor": tensor_s,
    }


def draw() -> torch.Tensor:
    """Draw the order of an epoch as torch's `RandomSampler` does."""
    generator = torch.Generator()
    generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
    return torch.randperm(SIZES.rows, generator=generator)


def begin_s(loader: Any) -> float:
    """Return the seconds in which an epoch begins, between epochs."""
    spent = []
    for _ in range(REPEATS // BATCHES):
        began = time.perf_counter()
        batches = iter(loader)
        spent.append(time.perf_counter() - began)
        for _ in batches:
            pass
    return median(spent)


def copy_s(rows: torch.Tensor) -> float:
    """Return the seconds of a copy, without those of the call from Python."""
    order = draw().numpy()
    parts = [
        order[at : at + SIZES.row_batch] for at in range(0, SIZES.rows - SIZES.row_batch, SIZES.row_batch)
    ]
    outs = [torch.empty(SIZES.row_batch, SIZES.columns) for _ in range(2)]  # one is in use by training

    def copy_all(count: int) -> None:
        for number, part in enumerate(parts):
            gather(rows, part[:count], outs[number % 2][:count])

    repeats = REPEATS // BATCHES
    return (
        seconds(lambda: copy_all(SIZES.row_batch), repeats) - seconds(lambda: copy_all(1), repeats)
    ) / len(parts)


def tensor_s() -> float:
    """Return the seconds to make a tensor on existing memory and to let go of it."""
    tensor = torch.empty(SIZES.row_batch, SIZES.columns)
    return seconds(lambda: [tensor.data], REPEATS) - seconds(lambda: [tensor], REPEATS)


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the seconds that the work takes once."""
    began = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - began) / repeats


if __name__ == "__main__":
    main()
