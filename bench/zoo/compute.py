"""Healthy trainings: the loader keeps up and the step takes the time."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from zoo.case import Case
from zoo.data import Fixed, Items, Slow, Stream, fit
from zoo.neighbours import busy
from zoo.truth import Truth
from zoo.work import Model, augment, burn


def in_memory(truth: Truth) -> None:
    """A tensor dataset in the training process, all threads computing."""
    rows = torch.randn(2080, 32)
    loader = DataLoader(TensorDataset(rows, rows[:, 0]), batch_size=32, shuffle=True)
    fit(truth, loader, Model(25, threads=torch.get_num_threads()))


def matmul(truth: Truth) -> None:
    """Bare matrix products: no module, no autograd."""
    torch.set_num_threads(1)
    matrix = torch.randn(384, 384)

    def step(batch: Any) -> None:
        burn(60, lambda: torch.mm(matrix, matrix, out=product))

    product = torch.empty_like(matrix)
    fit(truth, DataLoader(Items(520, Fixed()), batch_size=8, num_workers=1), step)


def well_fed(truth: Truth) -> None:
    """Two workers that need a fraction of the step's time."""
    data = Items(520, Slow(cpu_ms=0.4, chunk=augment))
    fit(truth, DataLoader(data, batch_size=8, num_workers=2), Model(75))


def fed_by_stream(truth: Truth) -> None:
    """Two patient workers reading a stream over a slow line, spawned once for two epochs."""
    data = Stream(264, Slow(sleep_ms=2))
    loader = DataLoader(
        data, batch_size=8, num_workers=2, persistent_workers=True, multiprocessing_context="spawn"
    )
    fit(truth, loader, Model(60), epochs=2)


def beside_neighbours(truth: Truth) -> None:
    """The machine is full of others' work, the loader still keeps up."""
    with busy(4):
        fit(truth, DataLoader(Items(520, Fixed()), batch_size=8), Model(10))


CASES = (
    Case("compute-in-memory", in_memory, "fed", "compute", quick=True),
    Case("compute-matmul", matmul, "fed", "compute"),
    Case("compute-two-workers", well_fed, "fed", "compute"),
    Case("compute-spawned-stream", fed_by_stream, "fed", "compute"),
    Case("compute-busy-neighbours", beside_neighbours, "fed", "compute"),
)
