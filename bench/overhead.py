"""The overhead of unstarve itself, measured in turns with the bare loop.

``LoaderEvaluator`` (log mode) and, if installed, DALI's evaluator are timed around a loader that costs
nothing, in turns with the bare loop. The cost of ``unstarve run`` to the training process is timed inside a
recorded process, in turns with a loader from which unstarve was removed; its cost to a worker, by whole
processes in turns:

- CPU time of the training thread per step, inside ``next()``: with a worker and without, for an empty step
  and for one that computes and so leaves the caches cold. Writing the record is included.
- CPU time of a worker's main thread from batch to batch, for small and for large batches, which separates the
  cost per batch from the cost per sample.
- CPU time of the stack sampler's thread, per second rather than per step: at first, while it samples often,
  and later.
- Wall time of a step that computes for 5 ms: all of unstarve on, including the sampler, against all off.
- A training with 8 and with 16 workers, whole processes in turns: its wall time with an empty step, where it
  is as fast as its workers, and with a step of 5 ms; and its CPU time. Each is a ratio: the median over pairs
  of processes, with its interval.

Steps with and without unstarve alternate, so that other load on the machine hits both; their differences are
averaged without the extremes. Every other number is a mean over several processes, followed by half the width
of its 95 % interval: the noise of this machine at this hour.

    python bench/overhead.py [--quick] [--only PART]
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from unstarve.intervals import half_width, turn_order

SIZE = 8
SMALL, LARGE = 2, 66
"""Batch sizes of the worker's bench; so few batches wait for the training thread that it never sleeps."""
STEP_BAR_US, BATCH_BAR_US, SAMPLE_BAR_US = 30.0, 40.0, 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter processes")
    parser.add_argument("--only", choices=PARTS, help="one part alone")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.child:
        kind, *numbers = arguments.child
        print(json.dumps(CHILDREN[kind](*map(int, numbers))))
        return
    processes, steps = (3, 600) if arguments.quick else (7, 1500)
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    print(f"{versions}, {os.cpu_count()} cores, {processes} processes of {steps} steps each")
    for name, part in PARTS.items():
        if arguments.only in (None, name):
            part(processes, steps)


def heading(what: str, unit: str) -> None:
    print(f"\n{what:58}{unit:>12}{'±':>7}{'bar':>9}")


def line(name: str, values: Sequence[float], bar: float | None = None) -> None:
    limit = "" if bar is None else f"≤ {bar:g}"
    print(f"{name:58}{statistics.mean(values):12.2f}{half_width(values):7.2f}{limit:>9}", flush=True)


def evaluators(processes: int, steps: int) -> None:
    """Print the microseconds that each evaluator adds to a batch, in turns with the bare loop."""
    from unstarve import LoaderEvaluator

    heading("around a loader that costs nothing", "µs per batch")
    batches = [(torch.zeros(8, 4), torch.zeros(8)) for _ in range(steps)]
    wrappers: dict[str, Callable[[Any], Iterable[Any]]] = {"unstarve LoaderEvaluator": LoaderEvaluator}
    try:
        from nvidia.dali.plugin.pytorch.loader_evaluator import LoaderEvaluator as DaliEvaluator

        wrappers["DALI LoaderEvaluator"] = DaliEvaluator
    except ImportError:
        print("(DALI is not installed: no comparison with its evaluator)")
    times: dict[str, list[float]] = {name: [] for name in wrappers}
    for _ in range(processes):
        turns: dict[str, list[float]] = {name: [] for name in wrappers}
        for _ in range(10):
            bare = loop_us(batches)
            for name, wrap in wrappers.items():
                turns[name].append(loop_us(wrap(batches)) - bare)
        for name, added in turns.items():
            times[name].append(statistics.median(added))
    for name, values in times.items():
        line(name, values, 1.0 if name.startswith("unstarve") else None)


def loop_us(loader: Iterable[Any]) -> float:
    count = 0
    begin = time.perf_counter_ns()
    for _ in loader:
        count += 1
    return (time.perf_counter_ns() - begin) / count / 1e3


def training_thread(processes: int, steps: int) -> None:
    heading("CPU that unstarve run adds to the training thread", "µs a step")
    for workers in (0, 1):
        # Without workers, the training process also makes the batch.
        bar = STEP_BAR_US if workers else STEP_BAR_US + BATCH_BAR_US + SIZE * SAMPLE_BAR_US
        for step, us in (("empty step", 0), ("step of 2 ms", 2000)):
            found = [told_by(under_unstarve("next", workers, us, steps)) for _ in range(processes)]
            bare_us = statistics.mean(bare for bare, _ in found)
            line(f"{step}, {workers} workers ({bare_us:.0f} µs bare)", [added for _, added in found], bar)


def worker_process(processes: int, steps: int) -> None:
    heading("CPU that unstarve run adds to a worker", "µs")
    told: dict[int, list[tuple[float, float]]] = {SMALL: [], LARGE: []}
    for _ in range(processes):
        for size, pairs in told.items():
            child = ("worker", size, steps)
            bare = told_by([sys.executable, __file__, "--child", *map(str, child)])
            pairs.append((bare, told_by(under_unstarve(*child)) - bare))
    sample_us = [(b - a) / (LARGE - SMALL) for (_, a), (_, b) in zip(told[SMALL], told[LARGE], strict=True)]
    batch_us = [added - SMALL * each for (_, added), each in zip(told[SMALL], sample_us, strict=True)]
    small_us, large_us = (statistics.mean(bare for bare, _ in told[size]) for size in (SMALL, LARGE))
    line(f"a batch ({small_us:.0f} µs bare)", batch_us, BATCH_BAR_US)
    line(f"a sample ({(large_us - small_us) / (LARGE - SMALL):.1f} µs bare)", sample_us, SAMPLE_BAR_US)


def stack_sampler(processes: int, steps: int) -> None:
    heading("CPU of the stack sampler's thread", "ms a second")
    told = [told_by(under_unstarve("sampler")) for _ in range(processes)]
    line("in the first second", [first for first, _ in told])
    line("later", [later for _, later in told])


def slowdown(processes: int, steps: int) -> None:
    heading("wall time that unstarve run adds, all of it on", "%")
    rounds = rounds_of(0.005)
    for workers in (0, 1):
        told = [told_by(under_unstarve("train", workers, rounds, steps)) for _ in range(processes)]
        bare_ms = statistics.mean(bare for bare, _ in told) / 1e3
        shares = [100 * added / bare for bare, added in told]
        line(f"a step of 5 ms, {workers} workers ({bare_ms:.2f} ms bare)", shares, 1.0)


def many_workers(processes: int, steps: int) -> None:
    heading("a training with many workers under unstarve run", "times bare")
    rounds = rounds_of(0.005)
    for workers in (8, 16):
        child = ("crowd", workers, rounds, steps // 3)
        found = []
        for turn in range(processes):
            took = {on: told_by(crowd(*child, on=on)) for on in turn_order((False, True), turn)}
            found.append((took[False], took[True]))
        for place, what in enumerate(("an empty step", "a step of 5 ms", "CPU time, workers included")):
            bare_ms = statistics.median(bare[place] for bare, _ in found) / 1e3
            ratios = [recorded[place] / bare[place] for bare, recorded in found]
            low, high = median_interval(ratios)
            name = f"{what}, {workers} workers ({bare_ms:.2f} ms bare)"
            print(f"{name:58}{statistics.median(ratios):12.3f}  ({low:.3f}–{high:.3f})", flush=True)


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median: by order, or all values where they are too few for that."""
    ordered, count = sorted(values), len(values)
    outside = [
        sum(math.comb(count, k) for k in range(place)) / 2 ** (count - 1) for place in range(count // 2)
    ]
    place = max((place for place, chance in enumerate(outside) if chance <= 0.05), default=0)
    return ordered[max(place - 1, 0)], ordered[-max(place, 1)]


PARTS: dict[str, Callable[[int, int], None]] = {
    "evaluators": evaluators,
    "step": training_thread,
    "worker": worker_process,
    "sampler": stack_sampler,
    "slowdown": slowdown,
    "many": many_workers,
}


def under_unstarve(*child: str | int) -> list[str]:
    launcher = [sys.executable, "-c", "from unstarve.cli import main; main()", "run", "--quiet", "--force"]
    run = str(Path(tempfile.gettempdir()) / f"bench-{os.getpid()}.unstarve")
    return [*launcher, "-o", run, __file__, "--child", *map(str, child)]


def crowd(*child: str | int, on: bool) -> list[str]:
    return under_unstarve(*child) if on else [sys.executable, __file__, "--child", *map(str, child)]


def told_by(command: list[str]) -> Any:
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


# --- what the children do ---------------------------------------------------------------------------------


class Switched:
    """An iterator from which unstarve can be removed, and put back, between two batches."""

    def __init__(self, workers: int, batches: int) -> None:
        rows = torch.zeros((batches + 100) * SIZE, 16)
        data = TensorDataset(rows, rows[:, 0])
        self._iterator: Any = iter(DataLoader(data, batch_size=SIZE, num_workers=workers))
        self._recorded_next = type(self._iterator).__next__
        self._bare_next = self._recorded_next.__wrapped__
        self._workers = workers
        own = self._iterator.__dict__
        self._tap = own["_unstarve_tap"]
        if workers:
            queue = own["_worker_result_queue"]
            self._places = [(queue.__dict__, "get"), (queue.__dict__, "_recv_bytes")]
        else:
            self._places = [(own["_dataset_fetcher"].__dict__, "_unstarve_probe")]
        self._things = [place[name] for place, name in self._places]
        self.set(True)
        for _ in range(50):
            next(self._iterator)

    def set(self, on: bool) -> Callable[[], Any]:
        """Switch unstarve on or off; return the function that gives the next batch."""
        own = self._iterator.__dict__
        if on:
            own["_unstarve_tap"] = self._tap
            for (place, name), thing in zip(self._places, self._things, strict=True):
                place[name] = thing
            return functools.partial(self._recorded_next, self._iterator)
        own.pop("_unstarve_tap", None)
        for place, name in self._places:
            place.pop(name, None)
        if self._workers:
            queue = own["_worker_result_queue"]
            queue._recv_bytes = queue._reader.recv_bytes
        return functools.partial(self._bare_next, self._iterator)


def in_turns(steps: int, measure: Callable[[bool], float]) -> list[float]:
    """Return the microseconds without unstarve and those it adds, from nanoseconds measured in turns."""
    pairs = []
    for count in range(steps):
        spent = {on: measure(on) for on in turn_order((False, True), count)}
        pairs.append((spent[False], spent[True]))
    bare = usual([off for off, _ in pairs])
    return [bare / 1e3, usual([on - off for off, on in pairs]) / 1e3]


def next_us(workers: int, step_us: int, steps: int) -> list[float]:
    """Return the training thread's CPU microseconds in a bare ``next()``, and those that recording adds.

    Measured in stretches: recording counts the time between two recorded batches as a step, so the first
    batches after unrecorded ones differ from the others.
    """
    settling, stretch = 2, 3
    switched = Switched(workers, 2 * steps * (settling + stretch) // stretch)
    x = torch.zeros(512, 16)

    def spent_ns(on: bool) -> float:
        advance = switched.set(on)
        spent = []
        for _ in range(settling + stretch):
            until = time.perf_counter_ns() + step_us * 1000
            while time.perf_counter_ns() < until:
                x.sum()
            begin = time.thread_time_ns()
            advance()
            spent.append(time.thread_time_ns() - begin)
        return usual(spent[settling:])

    return in_turns(steps // stretch, spent_ns)


def train_us(workers: int, rounds: int, steps: int) -> list[float]:
    """Return the microseconds of a bare computing step and those that unstarve adds, in stretches."""
    from unstarve.collect.recorder import recorder

    stretch = 20
    switched = Switched(workers, 2 * steps)
    owner = recorder()
    assert owner is not None
    sampler = owner._sampler
    assert sampler is not None
    x = torch.rand(64, 64)

    def ns_a_step(on: bool) -> float:
        advance = switched.set(on)
        sampler.resume() if on else sampler.pause()
        begin = unhindered_ns()
        for _ in range(stretch):
            advance()
            for _ in range(rounds):
                x.matmul(x)
        return (unhindered_ns() - begin) / stretch

    return in_turns(steps // stretch, ns_a_step)


class Computed(Dataset[torch.Tensor]):
    """Samples that take a worker some time."""

    def __init__(self, batches: int) -> None:
        self.batches = batches
        self.weights = torch.rand(64, 64)

    def __len__(self) -> int:
        return self.batches * SIZE

    def __getitem__(self, index: int) -> torch.Tensor:
        sample = self.weights
        for _ in range(5):
            sample = sample.matmul(self.weights)
        return sample


def crowd_us(workers: int, rounds: int, steps: int) -> list[float]:
    """Return microseconds a step with many workers: of an empty step, of one that computes, of CPU time."""
    loader = DataLoader(Computed(steps), batch_size=SIZE, num_workers=workers, persistent_workers=True)
    x = torch.rand(64, 64)
    took, before_s = [], cpu_s()
    for per_step in (0, 0, rounds):  # the first epoch starts the workers
        begin = time.perf_counter()
        for _ in loader:
            for _ in range(per_step):
                x.matmul(x)
        took.append((time.perf_counter() - begin) / steps * 1e6)
    del loader  # its workers end: their CPU time counts from now on
    return [*took[1:], (cpu_s() - before_s) / (3 * steps) * 1e6]


def cpu_s() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


def unhindered_ns() -> int:
    """Return wall time minus the time this thread waited for a core."""
    queued = int(Path("/proc/thread-self/schedstat").read_text().split()[1])
    return time.perf_counter_ns() - queued


def usual(values: Sequence[float], left_out: float = 0.05) -> float:
    """Return the mean without the extremes on both sides, which other processes cause."""
    cut = int(left_out * len(values))
    return statistics.mean(sorted(values)[cut : len(values) - cut])


class Clock(Dataset[int]):
    """The first sample of every batch is the CPU time of the thread that makes it."""

    def __init__(self, batches: int, size: int) -> None:
        self.batches, self.size = batches, size

    def __len__(self) -> int:
        return self.batches * self.size

    def __getitem__(self, index: int) -> int:
        return 0 if index % self.size else time.thread_time_ns()


def worker_us(size: int, batches: int) -> float:
    """CPU of a worker's main thread from batch to batch."""
    loader = DataLoader(Clock(batches, size), batch_size=size, num_workers=1)
    clocks = [int(batch[0]) for batch in loader][50:]
    return usual([b - a for a, b in pairwise(clocks)]) / 1e3


def sampler_ms() -> list[float]:
    """Return the sampler thread's CPU milliseconds per second: in the first second, and later."""
    from unstarve.collect.recorder import recorder

    next(iter(DataLoader(torch.zeros(8, 1), batch_size=SIZE)))
    owner = recorder()
    assert owner is not None
    sampler = owner._sampler
    assert sampler is not None
    told = []
    for seconds in (1, 1, 2):
        begin, before_s = time.perf_counter(), sampler._own_cpu_s
        while time.perf_counter() < begin + seconds:
            sum(range(100))
        told.append((sampler._own_cpu_s - before_s) * 1e3 / seconds)
    return [told[0], told[-1]]


def rounds_of(step_s: float) -> int:
    """Return how many multiplications make a step of that length."""
    x, count = torch.rand(64, 64), 0
    until = time.thread_time() + 1
    while time.thread_time() < until:
        for _ in range(10):
            x.matmul(x)
        count += 10
    return round(count * step_s)


CHILDREN: dict[str, Callable[..., float | list[float]]] = {
    "next": next_us,
    "worker": worker_us,
    "sampler": sampler_ms,
    "train": train_us,
    "crowd": crowd_us,
}


if __name__ == "__main__":
    main()
