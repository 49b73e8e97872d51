"""Seconds to resume in the middle of an epoch of a million samples, and what carrying the state costs.

The time is that from `load_state_dict` to the first batch, in a new loader; beside it, the time from `iter`
to the first batch of a new epoch. No sample that was given before is read again.
"""

from __future__ import annotations

import argparse
import pickle
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, RandomSampler, TensorDataset

from unstarve import DataLoader
from unstarve.fixes.loader.resume.worker_notes import WorkerNotes

REPEATS = 5
NOTES = 1000
DRAWS: dict[str, Callable[[], object]] = {
    "draws nothing": lambda: None,
    "draws from torch": lambda: torch.rand(1),
    "draws from all three": lambda: (torch.rand(1), np.random.rand(), random.random()),
}


class Samples(Dataset[Any]):
    """Samples of which nothing is known."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((16,), float(index))


class UserSampler(RandomSampler):
    """A sampler that the loader does not know."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--batch-size", type=int, default=64)
    arguments = parser.parse_args()
    count, size = arguments.samples, arguments.batch_size
    plain, rows = Samples(count), TensorDataset(torch.zeros(count, 16))
    cases: dict[str, Callable[[], Any]] = {
        "stock": lambda: DataLoader(plain, size, shuffle=True, engine="stock"),
        "stock, own sampler": lambda: DataLoader(plain, size, sampler=UserSampler(plain)),
        "ring, 2 workers": lambda: DataLoader(plain, size, shuffle=True, engine="ring", num_workers=2),
        "gather": lambda: DataLoader(rows, size, shuffle=True, engine="gather"),
        "views": lambda: DataLoader(rows, size, engine="views"),
    }
    print(f"{count:,} samples, batches of {size}, resumed in the middle of an epoch; median of {REPEATS}")
    for name, make in cases.items():
        times = [_resume(make, count // size // 2) for _ in range(REPEATS)]
        resumed_s, begun_s, saved_s, state_bytes = (
            statistics.median(one) for one in zip(*times, strict=True)
        )
        print(
            f"{name:20} first batch after {resumed_s:.3f} s (a new epoch: {begun_s:.3f} s), "
            f"state_dict {saved_s * 1e3:.2f} ms, {state_bytes / 1e3:.0f} kB"
        )
    print("\nwhat a worker pays for its notes, per batch:")
    for name, draw in DRAWS.items():
        print(f"{name:20} {min(_note_s(draw) for _ in range(REPEATS)) * 1e6:.0f} µs")


def _resume(make: Callable[[], Any], given: int) -> tuple[float, float, float, int]:
    loader = make()
    since = time.perf_counter()
    iterator = iter(loader)
    next(iterator)
    begun_s = time.perf_counter() - since
    since = time.perf_counter()
    state = loader.state_dict()
    saved_s = time.perf_counter() - since
    del iterator
    # As if it had been interrupted there: the same generators, another number of batches.
    ahead = state["epoch"]["asked"] - state["epoch"]["given"]
    state["epoch"] |= {"given": given, "asked": given + ahead}
    resumed = make()
    since = time.perf_counter()
    resumed.load_state_dict(state)
    next(iter(resumed))
    return time.perf_counter() - since, begun_s, saved_s, len(pickle.dumps(state))


def _note_s(draw: Callable[[], object]) -> float:
    """Seconds of a note after a batch that draws; the drawing is not counted."""
    put = WorkerNotes(1, 2, None).for_worker(0).noting(lambda item: None)
    spent_s = 0.0
    for task in range(NOTES):
        draw()
        since = time.perf_counter()
        put((task, None))
        spent_s += time.perf_counter() - since
    return spent_s / NOTES


if __name__ == "__main__":
    main()
