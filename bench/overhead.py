"""What unstarve itself costs, measured beside the bare loop in one run.

``LoaderEvaluator`` (log mode) and, where it is installed, DALI's evaluator are timed around a loader that
costs nothing, in turns with the bare loop. ``unstarve run`` is timed by whole processes, bare and recorded
in turns: CPU time of the training thread inside ``next()``, where all of unstarve's work is done, for an
empty step and for one that computes and so leaves the caches cold. Prints medians over the repeats.

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
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

STEPS = {"empty step": 4000, "step of 2 ms": 400}
BARS = {"LoaderEvaluator": 1.0, "unstarve run": 10.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--child", choices=STEPS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(child(arguments.child)))
        return
    repeats = 3 if arguments.quick else 9
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    print(f"{versions}, {os.cpu_count()} cores, {repeats} repeats")
    print(f"\n{'around a loader that costs nothing':44}{'µs a batch':>12}{'bar':>8}")
    for name, added_us in evaluators(repeats).items():
        print(f"{name:44}{added_us:12.2f}{bar(name):>8}")
    print(f"\n{'CPU inside next()':44}{'µs a step':>12}{'bar':>8}")
    for kind in STEPS:
        bare_us, added_us = recorded(kind, repeats)
        print(f"{f'bare, {kind}':44}{bare_us:12.1f}")
        print(f"{f'unstarve run adds, {kind}':44}{added_us:12.1f}{bar('unstarve run'):>8}")


def bar(name: str) -> str:
    """The most that a part may cost, where the project has set itself one."""
    return next((f"≤ {value:g}" for part, value in BARS.items() if part in name), "")


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


def recorded(kind: str, repeats: int) -> tuple[float, float]:
    """CPU of a bare step, and what recording adds to it; whole processes in turns."""
    bare, under = [], []
    script = [__file__, "--child", kind]
    with tempfile.TemporaryDirectory() as folder:
        launcher = [sys.executable, "-c", "from unstarve.cli import main; main()"]
        launcher += ["run", "--quiet", "--force", "-o", str(Path(folder) / "bench.unstarve")]
        for _ in range(repeats):
            bare.append(cpu_us([sys.executable, *script]))
            under.append(cpu_us([*launcher, *script]))
    return statistics.median(bare), statistics.median(u - b for u, b in zip(under, bare, strict=True))


def cpu_us(command: list[str]) -> float:
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(json.loads(out))


def child(kind: str) -> float:
    """The training that is measured: CPU microseconds of the training thread per ``next()``."""
    torch.set_num_threads(1)
    steps = STEPS[kind]
    rows = torch.zeros((steps + 100) * 8, 16)
    loader = DataLoader(TensorDataset(rows, rows[:, 0]), batch_size=8)
    batches = iter(loader)
    for _ in range(50):
        next(batches)
    cpu_ns = 0
    for _ in range(steps):
        begin = time.thread_time_ns()
        next(batches)
        cpu_ns += time.thread_time_ns() - begin
        if kind != "empty step":
            until = time.perf_counter_ns() + 2_000_000
            while time.perf_counter_ns() < until:
                rows[:512].sum()
    return cpu_ns / steps / 1e3


if __name__ == "__main__":
    main()
