"""Memory and start-up of workers whose dataset holds a long list of paths, plain and after `unstarve.share`.

For each start method, every worker of torch's own loader reads all paths. Then the memory of all processes is
added up (PSS: a page that several processes share counts once), less that of the same loader with an empty
list. The rest is the list's; one copy of it in Python is the unit.

The start is that of one worker, until its dataset has arrived, the fastest of three. The start with an empty
list is printed beside it: under spawn, importing torch takes most of it.

Last come the costs of reading a value and of sharing, in this process.

    python bench/share.py [--paths N] [--workers N]
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import platform
import random
import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import unstarve

METHODS = ("fork", "spawn", "forkserver")
KINDS = ("empty", "plain", "shared")
ROUNDS = 3
arrived_s = 0.0


class Paths(Dataset[Any]):
    """Each item is a round of one worker through all paths."""

    def __init__(self, paths: list[str], workers: int) -> None:
        self.paths = paths
        self.workers = workers
        self.begun_s = 0.0

    def __len__(self) -> int:
        return self.workers

    def __getitem__(self, index: int) -> float:
        total = sum(len(self.paths[position]) for position in range(len(self.paths)))
        assert total >= 0
        gc.collect()  # sooner or later it copies what the worker inherited of the program
        return arrived_s - self.begun_s


def arrive(worker: int) -> None:
    global arrived_s
    arrived_s = time.time()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--paths", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(*options.one, options.paths, options.workers)))
        return
    copy_bytes = sys.getsizeof(paths := made_up(options.paths)) + sum(map(sys.getsizeof, paths))
    del paths
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores")
    print(
        f"{options.paths:,} paths, one copy in Python: {copy_bytes / 1e6:.0f} MB; {options.workers} workers"
    )
    print(f"{'':11} {'list':7} {'memory':>8} {'copies':>7} {'start of a worker':>18}")
    for method in METHODS:
        found = {kind: in_new_process(method, kind, options) for kind in KINDS}
        for kind in KINDS:
            more = found[kind]["pss_bytes"] - found["empty"]["pss_bytes"]
            memory = "" if kind == "empty" else f"{more / 1e6:5.0f} MB {more / copy_bytes:6.2f}×"
            print(f"{method:11} {kind:7} {memory:16} {found[kind]['start_s'] * 1e3:15.0f} ms", flush=True)
    reading(options.paths)


def reading(count: int) -> None:
    """Print what reading costs, plain and shared."""
    paths = made_up(count)
    lists: dict[str, Any] = {
        "paths[i]": paths,
        "samples[i]": [(path, i % 1000) for i, path in enumerate(paths)],
        "records[i]": [{"id": i, "file": path, "box": [0.0, 0.0, 1.0, 1.0]} for i, path in enumerate(paths)],
    }
    by_path = {path: i for i, path in enumerate(paths)}
    print(f"{'':20} {'plain':>8} {'shared':>8}")
    for name, values in lists.items():
        print_costs(name, values, unstarve.share(values), range(count))
    print_costs("numbers[path]", by_path, unstarve.share(by_path), paths)
    begun_s = time.perf_counter()
    unstarve.share(paths)
    print(f"sharing the paths takes {time.perf_counter() - begun_s:.2f} s")


def print_costs(name: str, plain: Any, shared: Any, keys: Sequence[Any]) -> None:
    """Print the median CPU time of a read, in ns."""
    some = random.Random(0).sample(keys, 20_000)
    costs = []
    for values in (plain, shared):
        times = timeit.repeat(
            lambda values=values: [values[key] for key in some], timer=time.thread_time, repeat=7, number=1
        )
        costs.append(f"{statistics.median(times) / len(some) * 1e9:5.0f} ns")
    print(f"{name:20} {costs[0]} {costs[1]}")


def in_new_process(method: str, kind: str, options: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", method, kind]
    command += ["--paths", str(options.paths), "--workers", str(options.workers)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def one(method: str, kind: str, count: int, workers: int) -> dict[str, float]:
    """Measure one kind of list in this process and its workers."""
    if method == "forkserver":
        multiprocessing.set_forkserver_preload(["torch.utils.data"])
    dataset = Paths([] if kind == "empty" else made_up(count), workers=1)
    if kind == "shared":
        dataset = unstarve.share(dataset)
    starts = [first_of(method, dataset) for _ in range(ROUNDS)]
    dataset.workers = workers
    batches = iter(loader_of(method, dataset, workers))
    for _ in batches:
        pass
    pids = [os.getpid(), *(worker.pid for worker in batches._workers)]  # type: ignore[attr-defined]  # torch's own
    return {"pss_bytes": sum(map(pss_bytes, pids)), "start_s": min(starts)}


def first_of(method: str, dataset: Paths) -> float:
    loader = loader_of(method, dataset, 1)
    dataset.begun_s = time.time()
    return float(next(iter(loader)))


def loader_of(method: str, dataset: Paths, workers: int) -> DataLoader[Any]:
    return DataLoader(
        dataset,
        batch_size=None,
        num_workers=workers,
        multiprocessing_context=method,
        worker_init_fn=arrive,
        persistent_workers=True,
    )


def pss_bytes(pid: int) -> int:
    """A process's memory without mapped files: libraries count less when other programs use them."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    sizes = {line.split()[0]: int(line.split()[1]) << 10 for line in rollup.splitlines()[1:]}
    return sizes["Pss:"] - sizes["Pss_File:"]


def made_up(count: int) -> list[str]:
    return [f"/data/imagenet/train/n{i % 1000:08d}/n{i % 1000:08d}_{i}.JPEG" for i in range(count)]


if __name__ == "__main__":
    main()
