"""Samples that are work for a CPU."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader

from zoo.case import Case
from zoo.data import Items, Slow, Stream, fit
from zoo.truth import Truth
from zoo.work import Device, Model, augment, decompress, parse


def python(truth: Truth, **options: Any) -> None:
    """Decoding in plain Python, in the training process or in one worker."""
    fit(truth, DataLoader(Items(560, Slow(cpu_ms=4, chunk=parse)), batch_size=8, **options), Model(8))


def numpy(truth: Truth) -> None:
    """A transform in NumPy, one worker."""
    data = Items(560, Slow(cpu_ms=5, chunk=augment))
    fit(truth, DataLoader(data, batch_size=8, num_workers=1), Device(12))


def packed_stream(truth: Truth) -> None:
    """A compressed stream, one worker."""
    data = Stream(560, Slow(cpu_ms=4, chunk=decompress))
    fit(truth, DataLoader(data, batch_size=8, num_workers=1), Device(10))


SPAWNED = {"num_workers": 1, "multiprocessing_context": "spawn"}
CASES = (
    Case("cpu-python", python, "starved", "cpu", quick=True),
    Case("cpu-python-spawned", python, "starved", "cpu", SPAWNED),
    Case("cpu-numpy", numpy, "starved", "cpu"),
    Case("cpu-packed-stream", packed_stream, "starved", "cpu"),
)
