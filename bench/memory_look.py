"""What a look at a process's memory costs, and what tracing does to Python code that allocates."""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import torch

from unstarve.collect.memory.allocation_sites import _FRAMES
from unstarve.collect.memory.memory_look import memory_row


def cpu_ms(work: Callable[[], object], rounds: int) -> float:
    """The median CPU time of a call."""
    spent = []
    for _ in range(rounds):
        begin_ns = time.thread_time_ns()
        work()
        spent.append((time.thread_time_ns() - begin_ns) / 1e6)
    return statistics.median(spent)


def allocate() -> list[str]:
    return [str(number) for number in range(100_000)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    print(f"torch {torch.__version__}")
    for gigabytes in (0, 1, 2):
        held = np.ones(gigabytes << 27)
        print(f"a look with {gigabytes} GB: {cpu_ms(lambda: memory_row(0, training=True), rounds):.1f} ms")
        del held
    plain = cpu_ms(allocate, rounds)
    tracemalloc.start(_FRAMES)
    print(f"allocating 100,000 strings: {plain:.1f} ms, traced {cpu_ms(allocate, rounds):.1f} ms")


if __name__ == "__main__":
    main()
