"""More work than cores: processes are runnable but do not run."""

from __future__ import annotations

import os

from torch.utils.data import DataLoader

from zoo.case import Case
from zoo.cgroups import few_cores, limited, needs
from zoo.data import Items, Slow, Stream, fit
from zoo.neighbours import busy
from zoo.truth import Truth
from zoo.work import Device, Model, augment


def on_two_cores() -> None:
    """So that the truth is the same on a large machine."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])


def many_workers(truth: Truth) -> None:
    """Eight CPU-bound workers on two cores."""
    on_two_cores()
    data = Items(800, Slow(cpu_ms=6))
    fit(truth, DataLoader(data, batch_size=8, num_workers=8), Device(8))


def crowded_step(truth: Truth) -> None:
    """Ten CPU-bound workers beside a step that computes on both cores: it has batches, but no cores."""
    on_two_cores()
    data = Items(1280, Slow(cpu_ms=2))
    fit(truth, DataLoader(data, batch_size=16, num_workers=10), Model(25, threads=2))


def neighbours(truth: Truth) -> None:
    """One worker beside eight processes that have nothing to do with the training."""
    on_two_cores()
    with busy(8):
        data = Stream(560, Slow(cpu_ms=0.8, chunk=augment))
        fit(truth, DataLoader(data, batch_size=8, num_workers=1), Device(8))


def quota(truth: Truth) -> None:
    """Two workers that may use a third of a core."""
    with limited("cpu", few_cores(0.33)):
        data = Items(560, Slow(cpu_ms=2.5))
        fit(truth, DataLoader(data, batch_size=8, num_workers=2), Device(8))


CASES = (
    Case("contention-many-workers", many_workers, "starved", "contention", quick=True),
    Case("contention-crowded-step", crowded_step, "fed", "contention"),
    Case("contention-neighbours", neighbours, "starved", "contention"),
    Case("contention-quota", quota, "starved", "contention", why_not=needs("cpu", lambda: few_cores(0.33))),
)
