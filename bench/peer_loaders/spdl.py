"""SPDL: a pipeline of threads in the training process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.utils.data import default_collate

from unstarve.benchmark.bench_plan import BenchEntry
from unstarve.benchmark.optional_packages import installed
from unstarve.model import Kind

_WAITING_THREADS = 16


class Pipelined:
    """Samples loaded by `threads` threads in a shuffled order, and collated."""

    def __init__(self, load: Callable[[int], Any], count: int, batch_size: int, threads: int) -> None:
        self._build = installed("spdl.pipeline").PipelineBuilder
        self._load = load
        self._count = count
        self._batch_size = batch_size
        self._threads = threads

    def __iter__(self) -> Iterator[Any]:
        builder = self._build().add_source(torch.randperm(self._count).tolist())
        builder = builder.pipe(self._load, concurrency=self._threads).aggregate(self._batch_size)
        pipeline = builder.pipe(default_collate).add_sink(4).build(num_threads=self._threads + 1)
        with pipeline.auto_stop():
            yield from pipeline


def _loaded(paths: list[Any], index: int) -> Any:
    return torch.load(paths[index])


def _files(stored: Any) -> Any:
    load = partial(_loaded, stored.paths)
    return Pipelined(load, len(stored.paths), stored.batch_size, os.cpu_count() or 1)


def _waiting(waited: Any) -> Any:
    load = waited.source().__getitem__
    return Pipelined(load, waited.count, waited.batch_size, _WAITING_THREADS)


SPDL_FILES = BenchEntry("SPDL", Kind.PEER, _files)
SPDL_WAITING = BenchEntry("SPDL", Kind.PEER, _waiting)
