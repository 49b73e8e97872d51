"""What the checks of memory look at: a training process, its loaders and the workers of each."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unstarve.analyze.timeline import training_processes
from unstarve.checks.evidence.places import place_of
from unstarve.model import Loader, Process, Run

_DAY_S = 86_400.0
LONGEST_TRAINING_S = 7 * _DAY_S
"""Growth that does not fill the free memory within a week does not matter: few trainings run that long."""
LEAST_GROWN = 16_000_000
"""Bytes, of all processes together. Allocators alone make a process grow by a few megabytes."""
LEAST_GROWN_SHARE = 0.05
"""Of what a process held at first."""


@dataclass(frozen=True, slots=True)
class MemoryScene:
    """One loader of a training process."""

    training: Process
    loader: Loader
    workers: tuple[Process, ...]
    """Those that made its batches; empty without workers."""
    at_once: int
    """Workers that live at the same time."""

    @property
    def makers(self) -> Sequence[Process]:
        """The processes that hold its dataset and read samples."""
        return self.workers or (self.training,)

    @property
    def each(self) -> str:
        """The makers, as a sentence names them: ``each of 4 workers``."""
        if not self.workers:
            return "the training process"
        return f"each of {self.at_once} workers" if self.at_once > 1 else "the worker"

    @property
    def dataset(self) -> str:
        """The dataset, as the user wrote it: ``train_set``."""
        return dataset_source(self.loader.source) or "dataset"

    @property
    def free_bytes(self) -> int | None:
        return self.training.system.get("free_bytes")

    @property
    def place(self) -> tuple[str | None, int | None]:
        """File and line where the loader was created."""
        return place_of(self.loader)

    def named(self, attribute: str) -> str:
        """An attribute of the dataset by the user's name: ``self.samples`` is ``train_set.samples``."""
        name, dataset = attribute.removeprefix("self"), self.dataset
        if attribute == name:  # a cache of its class or module
            return attribute
        return f"{dataset if dataset.isidentifier() else 'dataset'}{name}"


def memory_scenes(run: Run) -> Iterator[MemoryScene]:
    """The loaders of all training processes."""
    by_pid = {(p.host, p.pid): p for p in run.processes if p.worker}
    for training in training_processes(run):
        for loader in training.loaders:
            crews = [crew.pids for crew in training.crews if crew.loader == loader.id]
            pids = {pid for crew in crews for pid in crew}
            workers = tuple(by_pid[key] for pid in sorted(pids) if (key := (training.host, pid)) in by_pid)
            if workers or not loader.config.get("num_workers"):
                yield MemoryScene(training, loader, workers, max(map(len, crews), default=0))


def matters(grown: float, per_s: float, first: float, free_bytes: int | None) -> bool:
    """Whether growth of memory, of all processes together, is worth a warning."""
    if per_s <= 0 or grown < max(LEAST_GROWN, LEAST_GROWN_SHARE * first):
        return False
    return free_bytes is None or free_bytes / per_s <= LONGEST_TRAINING_S


def batches_per_s(training: Process, loader: int | None = None) -> float | None:
    """Batches that training received a second, from one loader or from all."""
    batches = [b for b in training.batches if not b.nested and loader in (None, b.loader)]
    if len(batches) < 2 or batches[-1].got_ns <= batches[0].got_ns:
        return None
    return (sum(b.weight for b in batches) - 1) * 1e9 / (batches[-1].last_ns - batches[0].got_ns)


def dataset_source(source: str | None) -> str | None:
    """The first argument of a loader's call, as written."""
    try:
        call = ast.parse(source or "", mode="eval").body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(call, ast.Call):
        return None
    given = [keyword.value for keyword in call.keywords if keyword.arg == "dataset"] or call.args[:1]
    return ast.unparse(given[0]) if given and not isinstance(given[0], ast.Starred) else None
