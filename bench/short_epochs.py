"""How soon the threads engine is at full speed: the first batch of an epoch, and epochs of 25 batches.

    python bench/short_epochs.py [--rounds 5] [--folder DIR]

Images (batches of 32 random crops to 224×224) and `.pt` files of 100 KB (batches of 64), all in the page
cache, in `unstarve.DataLoader` without workers and with as many as cores. Long and short epochs take turns.

    batches/s     in the middle of an epoch of 100 batches
    first batch   wall time, relative to its CPU time divided by the cores: 1 is all cores from the start
    in batches    the same, relative to the wall time of a batch in the middle of an epoch
    25 batches    rate of a whole epoch of 25 batches, relative to batches/s
    with workers  batches/s with workers, relative to none

All but batches/s are medians over the rounds of ratios within one round. Other processes on the cores make
"first batch" worse; the last line says how much of the cores these measurements got.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils.data import Subset

import unstarve
from unstarve.benchmark.bench_data import image_files, tensor_files
from unstarve.machine import usable_cores

SHORT, LONG = 25, 100
"""Batches in an epoch."""
WARM_UP = 10
"""Batches of a long epoch before its middle."""


@dataclass(frozen=True)
class Round:
    """What one round measured."""

    batches_per_s: float
    first: float
    first_batches: float
    short: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="for the files; by default a temporary one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        measure(Path(folder), given.rounds)


def measure(folder: Path, rounds: int) -> None:
    """Print the table."""
    cores = usable_cores()
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    print("| data | workers | batches/s | first batch | in batches | 25 batches | with workers |")
    print("|---|---|---|---|---|---|---|")
    for name, (dataset, size) in data(folder).items():
        ways = {workers: loaders(dataset, size, workers) for workers in (0, cores)}
        found: dict[int, list[Round]] = {workers: [] for workers in ways}
        for pair in ways.values():
            whole(pair[0])
        for _ in range(rounds):
            for workers, (short, long) in ways.items():
                found[workers].append(one_round(short, long, cores))
        for workers, done in found.items():
            print(f"| {name} | {workers} | {row(done, found[0] if workers else None)} |", flush=True)
    share = (time.process_time() - began_cpu_s) / (time.perf_counter() - began_s) / cores
    print(f"\n{cores} cores, {platform.platform()}, torch {torch.__version__}; got {share:.0%} of the cores")


def data(folder: Path) -> dict[str, tuple[Any, int]]:
    """Return datasets of 25 batches, with their batch sizes."""
    root = image_files(folder / "images", SHORT * 32)
    files = tensor_files(folder / "files", SHORT * 64, 100_000)
    return {
        "images": (unstarve.ImageFolderDataset(root, size=224), 32),
        ".pt files": (unstarve.TensorFileDataset(files), 64),
    }


def loaders(dataset: Any, size: int, workers: int) -> tuple[Any, Any]:
    """Return loaders with short and with long epochs."""
    repeated = Subset(dataset, list(range(len(dataset))) * (LONG // SHORT))
    options: dict[str, Any] = {"batch_size": size, "shuffle": True, "num_workers": workers}
    return unstarve.DataLoader(dataset, **options), unstarve.DataLoader(repeated, **options)


def one_round(short: Any, long: Any, cores: int) -> Round:
    """Measure a long epoch and a short one."""
    iterator = iter(long)
    whole(islice(iterator, WARM_UP))
    began_cpu_s = time.process_time()
    steady_s = timed(lambda: whole(iterator)) / (LONG - WARM_UP)
    cpu_s = (time.process_time() - began_cpu_s) / (LONG - WARM_UP)
    began_s = time.perf_counter()
    iterator = iter(short)
    next(iterator)
    first_s = time.perf_counter() - began_s
    whole(iterator)
    short_s = (time.perf_counter() - began_s) / SHORT
    return Round(1 / steady_s, first_s / (cpu_s / cores), first_s / steady_s, steady_s / short_s)


def whole(batches: Iterable[Any]) -> None:
    """Take all batches."""
    for _ in batches:
        pass


def timed(work: Callable[[], None]) -> float:
    """Return the seconds that the work takes."""
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def row(done: list[Round], without: list[Round] | None) -> str:
    """Return the cells of one line after its name."""
    against = "" if without is None else f"{ratio(done, without):.2f}×"
    return " | ".join(
        [
            f"{median(one.batches_per_s for one in done):.0f}",
            f"{median(one.first for one in done):.1f}×",
            f"{median(one.first_batches for one in done):.1f}",
            f"{median(one.short for one in done):.0%}",
            against,
        ]
    )


def ratio(done: list[Round], without: list[Round]) -> float:
    """Return the median ratio of both rates in the same rounds."""
    pairs = zip(done, without, strict=True)
    return median(own.batches_per_s / other.batches_per_s for own, other in pairs)


if __name__ == "__main__":
    main()
