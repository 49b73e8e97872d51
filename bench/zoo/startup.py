"""Epochs that are short compared with the time to start one."""

from __future__ import annotations

import numpy as np
import torch
from torch.utils.data import DataLoader

from zoo.case import Case
from zoo.data import Fixed, Items, Stream, fit
from zoo.truth import Truth
from zoo.work import Device, Model, burn


class Table(Items):
    """A dataset that carries all of its rows to every worker."""

    def __init__(self, count: int, rows: int) -> None:
        super().__init__(count, Fixed())
        self.rows = [np.full(16, float(number)) for number in range(rows)]


def short_epochs(truth: Truth) -> None:
    """Four workers, forked again for every 8 batches."""
    fit(truth, DataLoader(Items(64, Fixed()), batch_size=8, num_workers=4), Model(3), epochs=16)


def slow_workers(truth: Truth) -> None:
    """Workers that open something large before they begin, every 10 batches."""
    loader = DataLoader(Stream(80, Fixed()), batch_size=8, num_workers=2, worker_init_fn=open_index)
    fit(truth, loader, Device(8), epochs=8)


def open_index(worker: int) -> None:
    """What a ``worker_init_fn`` may do."""
    torch.set_num_threads(1)
    burn(150)


def spawned_table(truth: Truth) -> None:
    """A large dataset pickled to one spawned worker, twice."""
    data = Table(264, rows=150_000)
    loader = DataLoader(data, batch_size=8, num_workers=1, multiprocessing_context="spawn")
    fit(truth, loader, Model(10), epochs=2)


CASES = (
    Case("startup-short-epochs", short_epochs, "starved", "startup", quick=True),
    Case("startup-slow-workers", slow_workers, "starved", "startup"),
    Case("startup-spawned-table", spawned_table, "starved", "startup"),
)
