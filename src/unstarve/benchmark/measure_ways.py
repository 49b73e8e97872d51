"""Measure one way to load: seconds and CPU seconds per batch, and memory besides the data.

Memory is the proportional set size, which counts shared pages once, over the training process and its
workers. Each way runs in a separate process, first on little data, so that its imports are not counted.
"""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import numpy as np
import psutil
import torch

from unstarve.benchmark.bench_plan import QUICK, PartPlan, Sizes
from unstarve.model import Extra


def seed_all(seed: int) -> None:
    """Seed all global random generators."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def time_per_batch(loader: Iterable[Any], *, least_s: float, skip: int = 0) -> float:
    """Return the seconds per batch over whole epochs that last at least `least_s` in total.

    The start and the end of an epoch count unless its first `skip` batches are left out.
    """
    total_s, batches = 0.0, 0
    while batches == 0 or total_s < least_s:
        began = time.perf_counter()
        iterator = iter(loader)
        count = 0
        if skip:
            for _ in islice(iterator, skip):
                pass
            began = ended = time.perf_counter()
            for count, _ in enumerate(iterator, start=1):  # noqa: B007  # the count is used after the loop
                ended = time.perf_counter()
        else:
            for count, _ in enumerate(iterator, start=1):  # noqa: B007  # as above
                pass
            ended = time.perf_counter()
        total_s += ended - began
        if count == 0:
            raise ValueError(f"the loader gave at most {skip} batches, too few to measure")
        batches += count
    return total_s / batches


def cpu_per_batch(loader: Iterable[Any]) -> float:
    """Return the CPU seconds per batch over an epoch, of this process and of workers that have ended."""
    began = _cpu_s()
    batches = sum(1 for _ in loader)
    return (_cpu_s() - began) / max(1, batches)


def _cpu_s() -> float:
    return sum(os.times()[:4])


def summary(batch_s: tuple[float, ...]) -> tuple[float | None, float | None]:
    """Return mean and standard deviation; None if there are too few values."""
    return (mean(batch_s) if batch_s else None, stdev(batch_s) if len(batch_s) > 1 else None)


def median_ratio(stock_s: Iterable[float], batch_s: Iterable[float]) -> float | None:
    """Return the median over rounds of stock's time divided by this way's."""
    ratios = [base / own for base, own in zip(stock_s, batch_s, strict=True)]
    return median(ratios) if ratios else None


def same(a: Any, b: Any) -> bool:
    """Whether two batches hold the same values in the same structure."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return isinstance(b, list | tuple) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


_LOOKS = 20
_LONGEST_S = 120


def pss_bytes(pid: int) -> int:
    """Proportional set size of a process; 0 if it has ended.

    ``/proc/PID/smaps_rollup`` has a line such as ``Pss:               41205 kB``.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def extra_memory(part: PartPlan, entry_name: str, sizes: Sizes, folder: Path) -> Extra | None:
    """Measure one way in a new process; None if that fails."""
    order = json.dumps([part.name, entry_name, asdict(sizes), str(folder)])
    command = [sys.executable, "-m", "unstarve.benchmark.measure_ways", order]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_LONGEST_S)
    except subprocess.SubprocessError:
        return None
    return Extra(**json.loads(done.stdout.splitlines()[-1]))


def measure(part: PartPlan, entry_name: str, sizes: Sizes, folder: Path) -> Extra:
    """Measure one way in this process, which must do nothing else."""
    entry = next(entry for entry in part.entries if entry.name == entry_name)
    little = folder / "little"
    little.mkdir(exist_ok=True)
    _highest(entry.make(part.prepare(QUICK, little)))
    data = part.prepare(sizes, folder)
    gc.collect()
    before = pss_bytes(psutil.Process().pid)
    return Extra(before, *_highest(entry.make(data)))


def _highest(loader: Any) -> tuple[int, int]:
    """Return the bytes of this process and of its workers at the peak of their sum during an epoch."""
    seed_all(0)
    me = psutil.Process()
    batches = len(loader) if hasattr(loader, "__len__") else _LOOKS
    every = max(1, batches // _LOOKS)
    highest = (0, 0)
    for at, _ in enumerate(loader):
        if at % every == 0:
            workers = sum(pss_bytes(child.pid) for child in me.children(recursive=True))
            highest = max(highest, (pss_bytes(me.pid), workers), key=sum)
    return highest


def _main() -> None:
    from unstarve.benchmark.run_benchmark import PARTS

    name, entry_name, sizes, folder = json.loads(sys.argv[1])
    part = next(part for part in PARTS if part.name == name)
    extra = measure(part, entry_name, Sizes(**sizes), Path(folder))
    print(json.dumps(asdict(extra)))


if __name__ == "__main__":
    _main()
