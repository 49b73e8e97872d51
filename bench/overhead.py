"""What unstarve itself costs, measured beside the bare loop in one run.

``LoaderEvaluator`` (log mode) and, where it is installed, DALI's evaluator are timed around a loader that
costs nothing, in turns with the bare loop. What ``unstarve run`` costs the training thread is timed inside a
recorded process, in turns with a loader from which unstarve was taken off again; what it costs a worker, by
whole processes in turns:

- CPU time of the training thread inside ``next()``, with a worker and without, for an empty step and for one
  that computes and so leaves the caches cold;
- CPU time of a worker's main thread from batch to batch, for small and for large batches, which tells what a
  batch adds and what a sample adds;
- wall time of a training whose step computes for 5 ms.

Each is a mean without the slowest tenth, which is other processes' doing. The stack sampler's thread is timed
by itself. Prints medians over the repeats.

    python bench/overhead.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

BARS = {
    "LoaderEvaluator": 1.0,
    "a step of 5 ms": 1.0,
    "0 workers (": 86.0,  # making the batch included: 30, a worker's 40, and 2 for each of 8 samples
    "next(), ": 30.0,
    "a batch in a worker": 40.0,
    "a sample in a worker": 2.0,
}
SMALL, LARGE = 2, 66
"""Batch sizes of the worker's bench; few enough batches wait for the training thread that it never sleeps."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        kind, *numbers = arguments.child
        print(json.dumps(CHILDREN[kind](*map(int, numbers))))
        return
    repeats = 3 if arguments.quick else 9
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    print(f"{versions}, {os.cpu_count()} cores, {repeats} repeats")
    heading("around a loader that costs nothing", "µs a batch")
    for name, added_us in evaluators(repeats).items():
        line(name, added_us)
    heading("CPU that unstarve run adds", "µs")
    for workers in (0, 1):
        for step, ms in (("empty step", 0), ("step of 2 ms", 2)):
            bare_us, added_us = side_by_side(repeats, "next", workers, ms)
            line(f"to a next(), {step}, {workers} workers ({bare_us:.0f} bare)", added_us)
    (small_bare, small), (large_bare, large) = (recorded(repeats, "worker", size) for size in (SMALL, LARGE))
    sample_us = (large - small) / (LARGE - SMALL)
    line(f"to a batch in a worker ({small_bare:.0f} bare)", small - SMALL * sample_us)
    sample_bare_us = (large_bare - small_bare) / (LARGE - SMALL)
    line(f"to a sample in a worker ({sample_bare_us:.1f} bare)", sample_us)
    heading("the stack sampler's thread", "ms a second")
    line("beside Python code", statistics.median(sampler_ms() for _ in range(repeats)))
    heading("wall time that unstarve run adds, without the sampler", "%")
    rounds = rounds_of(0.005)
    for workers in (0, 1):
        bare_us, added_us = side_by_side(repeats, "train", workers, rounds)
        line(f"to a step of 5 ms, {workers} workers ({bare_us / 1e3:.2f} ms bare)", 100 * added_us / bare_us)


def heading(what: str, unit: str) -> None:
    print(f"\n{what:56}{unit:>12}{'bar':>8}")


def line(name: str, value: float) -> None:
    bar = next((f"≤ {most:g}" for part, most in BARS.items() if part in name), "")
    print(f"{name:56}{value:12.2f}{bar:>8}", flush=True)


def evaluators(repeats: int) -> dict[str, float]:
    """Microseconds each evaluator adds to a batch, in turns with the bare loop."""
    from unstarve import LoaderEvaluator

    batches = [(torch.zeros(8, 4), torch.zeros(8)) for _ in range(1000)]
    wrappers: dict[str, Callable[[Any], Iterable[Any]]] = {"unstarve LoaderEvaluator": LoaderEvaluator}
    try:
        from nvidia.dali.plugin.pytorch.loader_evaluator import LoaderEvaluator as DaliEvaluator

        wrappers["DALI LoaderEvaluator"] = DaliEvaluator
    except ImportError:
        print("(DALI is not installed: no comparison with its evaluator)")
    times: dict[str, list[float]] = {name: [] for name in wrappers}
    for _ in range(repeats * 10):
        bare = loop_us(batches)
        for name, wrap in wrappers.items():
            times[name].append(loop_us(wrap(batches)) - bare)
    return {name: statistics.median(values) for name, values in times.items()}


def loop_us(loader: Iterable[Any]) -> float:
    count = 0
    begin = time.perf_counter_ns()
    for _ in loader:
        count += 1
    return (time.perf_counter_ns() - begin) / count / 1e3


def sampler_ms() -> float:
    """CPU milliseconds per second that looking at a busy thread's stack takes."""
    from unstarve.collect.stacks import StackSampler

    told: list[float] = []
    begin = time.perf_counter()
    sampler = StackSampler(lambda found, cpu_s: told.append(cpu_s), print, lambda: None)
    while time.perf_counter() < begin + 1:
        sum(range(100))
    sampler.close()
    return told[-1] * 1e3 / (time.perf_counter() - begin)


def recorded(repeats: int, *child: str | int) -> tuple[float, float]:
    """Microseconds of the bare child, and what recording adds to it; whole processes in turns."""
    bare, under = [], []
    for _ in range(repeats):
        bare.append(float(told_by([sys.executable, __file__, "--child", *map(str, child)])))
        under.append(float(told_by(under_unstarve(*child))))
    return statistics.median(bare), statistics.median(u - b for u, b in zip(under, bare, strict=True))


def side_by_side(repeats: int, *child: str | int) -> tuple[float, float]:
    """The same from children that are recorded and take every other batch from a loader that is not."""
    pairs = [told_by(under_unstarve(*child)) for _ in range(repeats)]
    return statistics.median(bare for bare, _ in pairs), statistics.median(added for _, added in pairs)


def under_unstarve(*child: str | int) -> list[str]:
    launcher = [sys.executable, "-c", "from unstarve.cli import main; main()", "run", "--quiet", "--force"]
    run = str(Path(tempfile.gettempdir()) / f"bench-{os.getpid()}.unstarve")
    return [*launcher, "-o", run, __file__, "--child", *map(str, child)]


def told_by(command: list[str]) -> Any:
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def two_iterators(workers: int, batches: int) -> tuple[Iterator[Any], Iterator[Any], torch.Tensor]:
    """One that unstarve records, one like it from which all of unstarve has been taken off again."""
    torch.set_num_threads(1)
    rows = torch.zeros((batches + 100) * 8, 16)
    loaders = [DataLoader(TensorDataset(rows, rows[:, 0]), batch_size=8, num_workers=workers) for _ in "ab"]
    seen, bare = (iter(loader) for loader in loaders)
    del bare.__dict__["_unstarve_tap"]
    if workers:
        queue = bare._worker_result_queue
        del queue.get
        queue._recv_bytes = queue._reader.recv_bytes
    else:
        bare._dataset_fetcher.__dict__["_unstarve_probe"] = None
    for _ in range(50):
        next(seen), next(bare)
    return seen, bare, rows


def in_turns(
    workers: int, clock: Callable[[], int], step: Callable[[], object], *, timed_step: bool
) -> list[float]:
    """Bare microseconds of a ``next()`` (and the step behind it), and what recording adds."""
    seen, bare, _ = two_iterators(workers, 400)
    spent: dict[bool, list[int]] = {True: [], False: []}
    for count in range(400):
        for is_seen in (True, False) if count % 2 else (False, True):
            begin = clock()
            next(seen if is_seen else bare)
            if timed_step:
                step()
            spent[is_seen].append(clock() - begin)
            if not timed_step:
                step()
    bare_us = usual(spent[False]) / 1e3
    return [bare_us, usual(spent[True]) / 1e3 - bare_us]


def next_us(workers: int, step_ms: int) -> list[float]:
    """CPU of the training thread per ``next()``, slow ones left out."""
    x = torch.zeros(512, 16)

    def step() -> None:
        until = time.perf_counter_ns() + step_ms * 1_000_000
        while time.perf_counter_ns() < until:
            x.sum()

    return in_turns(workers, time.thread_time_ns, step, timed_step=False)


def usual(values: list[int]) -> float:
    """The mean without the largest tenth: what other processes of the machine cause."""
    return statistics.mean(sorted(values)[: int(0.9 * len(values))])


class Clock(Dataset[int]):
    """The first sample of every batch is the CPU time of the thread that makes it."""

    def __init__(self, batches: int, size: int) -> None:
        self.batches, self.size = batches, size

    def __len__(self) -> int:
        return self.batches * self.size

    def __getitem__(self, index: int) -> int:
        return 0 if index % self.size else time.thread_time_ns()


def worker_us(size: int) -> float:
    """CPU of a worker's main thread from batch to batch."""
    batches = 2000
    loader = DataLoader(Clock(batches, size), batch_size=size, num_workers=1)
    clocks = [int(batch[0]) for batch in loader][50:]
    return usual([b - a for a, b in pairwise(clocks)]) / 1e3


def train_us(workers: int, rounds: int) -> list[float]:
    """Wall time of a step that computes; the slowest tenth left out."""
    x = torch.rand(64, 64)

    def step() -> None:
        for _ in range(rounds):
            x.matmul(x)

    return in_turns(workers, time.perf_counter_ns, step, timed_step=True)


def rounds_of(step_s: float) -> int:
    """How often to multiply for a step of that length."""
    torch.set_num_threads(1)
    x, count = torch.rand(64, 64), 0
    begin = time.perf_counter()
    while time.perf_counter() < begin + 1:
        x.matmul(x)
        count += 1
    return round(count * step_s)


CHILDREN: dict[str, Callable[..., float | list[float]]] = {
    "next": next_us,
    "worker": worker_us,
    "train": train_us,
}


if __name__ == "__main__":
    main()
