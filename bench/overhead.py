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
from pathlib import Path
from typing import Any

import torch
from overhead_children import SIZE, rounds_of

from unstarve.intervals import half_width, turn_order

_CHILD = str(Path(__file__).with_name("overhead_children.py"))
SMALL, LARGE = 2, 66
"""Batch sizes of the worker's bench; so few batches wait for the training thread that it never sleeps."""
STEP_BAR_US, BATCH_BAR_US, SAMPLE_BAR_US = 30.0, 40.0, 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter processes")
    parser.add_argument("--only", choices=PARTS, help="one part alone")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
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
            bare = told_by(alone(*child))
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
            ways = turn_order((alone, under_unstarve), turn)
            took = {way: told_by(way(*child)) for way in ways}
            found.append((took[alone], took[under_unstarve]))
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
    return [*launcher, "-o", run, _CHILD, *map(str, child)]


def alone(*child: str | int) -> list[str]:
    return [sys.executable, _CHILD, *map(str, child)]


def told_by(command: list[str]) -> Any:
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
