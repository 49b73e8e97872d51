"""A packed dataset against the stock loader over single files, warm and cold, in one run.

4,000 samples of 100 KB (float32) in batches of 64. Stock is torch's DataLoader without workers over
`torch.load` of one .pt file per sample. All contenders take turns; before a cold measurement its files are
dropped from the page cache. It prints medians, their ratio to stock, and the engine used.

    python bench/packed.py [--count N] [--rounds N] [--folder DIR]
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import unstarve
from unstarve.fixes.io.page_cache import evict, residency

ELEMENTS = 25_000
BATCH = 64
BARS = {"warm, shuffled": 25.0, "cold, shuffled": 14.0, "cold, chunked": 17.0}


class Files(Dataset[torch.Tensor]):
    """As most people write it: one file per sample."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(str(path) for path in folder.iterdir())

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        tensor: torch.Tensor = torch.load(self.files[index])
        return tensor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=4000, help="samples")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to put the data [default: a temporary folder]")
    arguments = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}, {time.strftime('%F')}")
    if arguments.folder is not None:
        measure(arguments.folder, arguments.count, arguments.rounds)
        return
    with tempfile.TemporaryDirectory(prefix="unstarve-bench-") as folder:
        measure(Path(folder), arguments.count, arguments.rounds)


def measure(folder: Path, count: int, rounds: int) -> None:
    """Print the table."""
    packed = make(folder, count)
    files = Files(folder / "pt")
    contenders: dict[str, Callable[[], Any]] = {
        "stock": lambda: DataLoader(files, BATCH, shuffle=True),
        "warm, shuffled": lambda: unstarve.DataLoader(dataset(packed), BATCH, shuffle=True),
        "warm, in order": lambda: unstarve.DataLoader(dataset(packed), BATCH),
        "cold, shuffled": lambda: unstarve.DataLoader(dataset(packed), BATCH, shuffle=True),
        "cold, shuffled, direct": lambda: unstarve.DataLoader(dataset(packed, "direct"), BATCH, shuffle=True),
        "cold, chunked": lambda: chunked(packed, "auto"),
        "cold, chunked, direct": lambda: chunked(packed, "direct"),
    }
    for temperature in ("warm", "cold"):
        everything = [*files.files, str(packed)]
        named = {name: make for name, make in contenders.items() if name == "stock" or temperature in name}
        times: dict[str, list[float]] = {name: [] for name in named}
        notes: dict[str, str] = {}
        for path in everything:
            Path(path).read_bytes()
        for _ in range(rounds):
            for name, make_loader in named.items():
                if temperature == "cold":
                    for path in everything if name == "stock" else [str(packed)]:
                        evict(path)
                loader = make_loader()
                engine = getattr(loader, "engine", "torch")  # before: a file may be warm afterwards
                times[name].append(epoch(loader, count))
                notes[name] = f"{engine}, {residency(packed) or 0:.0%} cached after"
        show(temperature, times, notes)


def make(folder: Path, count: int) -> Path:
    """Write the same samples as single files and packed."""
    (folder / "pt").mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(0)
    with unstarve.PackedWriter(folder / "all.packed", overwrite=True) as writer:
        for number in range(count):
            sample = torch.randn(ELEMENTS, generator=generator)
            torch.save(sample, folder / "pt" / f"{number:06}.pt")
            writer.append(sample)
    os.sync()
    return folder / "all.packed"


def dataset(path: Path, read: str = "auto") -> Any:
    return unstarve.PackedDataset(path, read=read)


def chunked(path: Path, read: str) -> Any:
    samples = dataset(path, read)
    return unstarve.DataLoader(samples, BATCH, sampler=samples.chunk_sampler())


def epoch(loader: Iterable[torch.Tensor], count: int) -> float:
    begun = time.perf_counter()
    got = sum(len(batch) for batch in loader)
    seconds = time.perf_counter() - begun
    assert got == count
    return seconds


def show(temperature: str, times: dict[str, list[float]], notes: dict[str, str]) -> None:
    stock = statistics.median(times["stock"])
    print(f"\n{temperature:26}ms per epoch   × stock   bar")
    for name, seconds in times.items():
        median = statistics.median(seconds)
        bar = f"{BARS[name]:4.0f}" if name in BARS else "    "
        print(f"{name:26} {median * 1e3:11.1f} {stock / median:9.1f}  {bar}   {notes[name]}")


if __name__ == "__main__":
    main()
