"""Two causes at once, of which the larger must win; and a loader that almost keeps up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader

from zoo.case import Case
from zoo.data import Items, Slow, SlowCollate, Stream, fit
from zoo.truth import Truth
from zoo.work import Device, Model, augment

Step = Callable[[float], Callable[[Any], None]]


def cpu_and_collate(truth: Truth) -> None:
    """Samples 28 ms a batch, collate 12."""
    data = Items(560, Slow(cpu_ms=3.5))
    fit(truth, DataLoader(data, batch_size=8, collate_fn=SlowCollate(12)), Model(10))


def remote_and_cpu(truth: Truth) -> None:
    """Latency 56 ms a batch, CPU 24, in two workers."""
    data = Items(560, Slow(sleep_ms=7, cpu_ms=3, chunk=augment))
    fit(truth, DataLoader(data, batch_size=8, num_workers=2), Device(10))


def collate_and_remote(truth: Truth) -> None:
    """Collate 28 ms a batch, latency 12, in one worker on a stream."""
    data = Stream(560, Slow(sleep_ms=1.5))
    loader = DataLoader(data, batch_size=8, num_workers=1, collate_fn=SlowCollate(28))
    fit(truth, loader, Device(12))


def almost(truth: Truth, step: Step, **load: Any) -> None:
    """A batch costs about an eighth of the step, in the training process."""
    fit(truth, DataLoader(Items(560, Slow(**load)), batch_size=8), step(32))


CASES = (
    Case("mixed-cpu-collate", cpu_and_collate, "starved", "cpu", quick=True),
    Case("mixed-remote-cpu", remote_and_cpu, "starved", "remote"),
    Case("mixed-collate-remote", collate_and_remote, "starved", "collate"),
    Case("tight-cpu", almost, "tight", "cpu", {"step": Model, "cpu_ms": 0.42}),
    Case("tight-remote", almost, "tight", "remote", {"step": Device, "sleep_ms": 0.4}),
)
