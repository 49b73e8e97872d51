"""How long each loader of a run made its loop wait, whatever the loop is: training, validation or a test."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from unstarve.model import Process, Run


@dataclass(frozen=True, slots=True)
class EpochWaits:
    """The epochs of one loader, each from its first batch to its last one.

    The wait for the first batch of an epoch is left out: workers start then.
    """

    name: str
    steps: int
    wait_s: float
    seconds: float
    """Of steps and waits together."""


def epoch_waits(run: Run) -> list[EpochWaits]:
    """Every loader that delivered at least two batches in an epoch."""
    return [waits for process in run.processes if not process.worker for waits in _of_process(process)]


def _of_process(process: Process) -> list[EpochWaits]:
    found = []
    for loader in process.loaders:
        batches = sorted(b for b in process.batches if b.loader == loader.id and not b.nested)
        pairs = [
            (a, b) for a, b in pairwise(batches) if (a.epoch, a.position + a.weight) == (b.epoch, b.position)
        ]
        if pairs:
            wait_s = sum(b.wait_ns for _, b in pairs) / 1e9
            steps = [
                (1, b.got_ns - a.last_ns) if b.thinned is None else (b.thinned.steps, b.thinned.step_ns)
                for a, b in pairs
            ]
            number, step_ns = (sum(part) for part in zip(*steps, strict=True))
            found.append(EpochWaits(loader.name, number, wait_s, step_ns / 1e9))
    return found
