"""Parts about the work of workers.

f, g       the hand-off of a finished batch from a worker process
prefetch   samples that wait
cpu-bound  samples computed in Python, which nothing here can make faster and nothing may make slower
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from unstarve.benchmark.bench_plan import BenchEntry, PartPlan, Sizes, faster, ours, public, stock

Sample = dict[str, torch.Tensor]
_SAMPLES = 4
"""Samples in a batch: few, so that collating is a copy and little else."""

_HANDOFF_OPTIONS: dict[str, Any] = {"batch_size": _SAMPLES, "num_workers": 1}


class Ready(Dataset[Sample]):
    """Returns the same sample again and again, at no cost.

    Each batch is collated again: a batch that was handed over once is already in shared memory, and torch
    would hand it over for free.
    """

    def __init__(self, sample: Sample, batches: int) -> None:
        self.sample = sample
        self.count = batches * _SAMPLES

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Sample:
        return self.sample


def _of_size(size_bytes: int, share: float) -> Callable[[Sizes, Path], Ready]:
    """Prepare batches of this size; `share` of the number in `Sizes`."""

    def prepare(sizes: Sizes, _: Path) -> Ready:
        sample = {"image": torch.zeros(size_bytes // 4 // _SAMPLES), "label": torch.tensor(1)}
        return Ready(sample, max(10, round(sizes.handed_over * share)))

    return prepare


def _small_tensors(sizes: Sizes, _: Path) -> Ready:
    return Ready({f"column {n}": torch.zeros(16) for n in range(150)}, sizes.handed_over)


def _handoff_part(
    letter: str, name: str, title: str, prepare: Callable[[Sizes, Path], Ready], times: float
) -> PartPlan:
    entries = (
        stock(lambda ready: DataLoader(ready, **_HANDOFF_OPTIONS)),
        ours(
            "unstarve.DataLoader",
            lambda ready: public("DataLoader")(ready, **_HANDOFF_OPTIONS),
            faster(times),
            rival="torch.utils.data.DataLoader",
        ),
    )
    return PartPlan(letter, name, lambda sizes: title, prepare, entries, skip=4, memory=True)


HANDOFF = (
    _handoff_part("f", "handoff-1mb", "one worker hands over dicts of 1 MB", _of_size(1_000_000, 1.0), 20),
    _handoff_part("f", "handoff-20mb", "one worker hands over dicts of 20 MB", _of_size(20_000_000, 0.2), 5),
    _handoff_part("g", "small-tensors", "one worker hands over 150 small tensors", _small_tensors, 5),
)


THREADS = 16


class Remote(Dataset[Any]):
    """Every sample waits and takes no CPU time."""

    def __init__(self, count: int, wait_s: float) -> None:
        self.count = count
        self.wait_s = wait_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.wait_s)
        return torch.tensor(index)


class RemoteAsync(Remote):
    """The same, as a coroutine."""

    async def __getitem__(self, index: int) -> Any:
        await asyncio.sleep(self.wait_s)
        return torch.tensor(index)


@dataclass(frozen=True)
class Waited:
    """Samples that wait, and how to load them."""

    count: int
    wait_s: float
    batch_size: int

    def source(self) -> Remote:
        """The dataset as most people write it."""
        return Remote(self.count, self.wait_s)

    @property
    def options(self) -> dict[str, Any]:
        """Arguments for loaders."""
        return {"batch_size": self.batch_size, "shuffle": True}


def _prepare_waits(sizes: Sizes, _: Path) -> Waited:
    return Waited(sizes.waited_for, sizes.wait_s, sizes.waited_batch)


def _ahead(loader: Any, kind: type[Remote], waited: Waited) -> Any:
    source = kind(waited.count, waited.wait_s)
    dataset = public("AsyncPrefetchDataset")(source, queue_size=2 * THREADS, num_workers=THREADS)
    return loader(dataset, **waited.options)


WAITING = (
    PartPlan(
        "prefetch", "prefetch",
        lambda s: f"{s.waited_for} samples of {s.wait_s * 1e3:.0f} ms of waiting, {THREADS} threads",
        _prepare_waits,
        (
            stock(lambda waited: DataLoader(waited.source(), **waited.options)),
            ours("AsyncPrefetchDataset, torch's", lambda w: _ahead(DataLoader, Remote, w), faster(12)),
            ours(
                "AsyncPrefetchDataset, ours",
                lambda w: _ahead(public("DataLoader"), Remote, w),
                faster(12),
                rival="AsyncPrefetchDataset, torch's",
            ),
            ours("the same with async def", lambda w: _ahead(DataLoader, RemoteAsync, w), faster(12)),
        ),
    ),
)  # fmt: skip


_TURNS_PER_S = 2e7
"""Iterations of a Python loop per second, about."""


def compute(sample: torch.Tensor, turns: int) -> torch.Tensor:
    """Keep Python busy, as a decoder or transform written in Python would."""
    value = 0
    for turn in range(turns):
        value += turn & 3
    return sample + value


class Computed(Dataset[torch.Tensor]):
    """Every sample is computed when it is fetched."""

    def __init__(self, count: int, turns: int, batch_size: int) -> None:
        self.rows = torch.arange(count)
        self.turns = turns
        self.options: dict[str, Any] = {"batch_size": batch_size, "shuffle": True}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.work(self.rows[index])

    def work(self, sample: torch.Tensor) -> torch.Tensor:
        """Compute one sample."""
        return compute(sample, self.turns)


def _prepare_computed(sizes: Sizes, _: Path) -> Computed:
    return Computed(sizes.computed, round(sizes.compute_s * _TURNS_PER_S), sizes.computed_batch)


def _prepare_for_workers(sizes: Sizes, folder: Path) -> Computed:
    return _prepare_computed(replace(sizes, computed=sizes.computed_by_workers), folder)


def _in_main(wrap: Callable[[Computed], Any]) -> Callable[[Computed], Any]:
    return lambda source: DataLoader(wrap(source), **source.options)


_NOT_SLOWER = faster(0.97)


def _loaders(workers: int) -> tuple[BenchEntry, BenchEntry]:
    return (
        stock(lambda source: DataLoader(source, num_workers=workers, **source.options)),
        ours(
            "unstarve.DataLoader",
            lambda source: public("DataLoader")(source, num_workers=workers, **source.options),
            _NOT_SLOWER,
            rival="torch.utils.data.DataLoader",
        ),
    )


COMPUTING = (
    PartPlan(
        "cpu-bound", "cpu-bound",
        lambda s: f"{s.computed} samples of {s.compute_s * 1e3:.0f} ms of Python, no worker",
        _prepare_computed,
        (
            *_loaders(0),
            ours(
                "AsyncPrefetchDataset",
                _in_main(lambda source: public("AsyncPrefetchDataset")(source, num_workers=4)),
                _NOT_SLOWER,
            ),
            ours(
                "CachedDataset, transform",
                _in_main(lambda source: public("CachedDataset")(source.rows, transform=source.work)),
                _NOT_SLOWER,
            ),
        ),
        pairs=30,
    ),
    PartPlan(
        "cpu-bound", "cpu-bound-workers",
        lambda s: f"{s.computed_by_workers} samples of {s.compute_s * 1e3:.0f} ms of Python, 2 workers",
        _prepare_for_workers, _loaders(2), pairs=6,  # the start of workers counts
    ),
)  # fmt: skip
