"""The cost of single samples, fetched one after the other in this process, and the functions it goes to."""

from __future__ import annotations

import cProfile
import operator
import pstats
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from unstarve.collect.describe import batch_extent
from unstarve.errors import UsageError
from unstarve.evaluate.handbook.setting_trials import is_iterable
from unstarve.model import ProfiledFunction, SampleCost

_MOST_SAMPLES = 2000
_FEWEST_SAMPLES = 3
_MOST_FUNCTIONS = 10
_SMALLEST_SHARE = 0.01
_SEED = 1
_PROFILER = "_lsprof.Profiler"
"""Part of the names of the profiler's own functions."""
_NO_MORE = object()
"""Returned when an iterable dataset has ended."""

Clock = Callable[[], float]


def sample_cost(
    dataset: Any, seconds: float, *, clock: Clock = time.perf_counter, cpu_clock: Clock = time.thread_time
) -> SampleCost:
    """Fetch random samples for `seconds`; the very first one, which may open files, does not count."""
    walls: list[tuple[float, int | None]] = []
    cpus: list[float] = []
    sample_bytes = None
    begin = clock()
    for index, get in _samples(dataset):
        before, before_cpu = clock(), cpu_clock()
        sample = get()
        after, after_cpu = clock(), cpu_clock()
        if sample is _NO_MORE:
            break
        walls.append((after - before, index))
        cpus.append(after_cpu - before_cpu)
        nbytes = batch_extent(sample)[1]
        sample_bytes = nbytes if nbytes >= 0 else None
        if len(walls) > _FEWEST_SAMPLES and after - begin >= seconds:
            break
    if not walls:
        raise UsageError("the dataset yields no sample: nothing to measure")
    if len(walls) > 1:
        del walls[0], cpus[0]
    times = np.array([wall for wall, _ in walls])
    longest_s, slowest = max(walls, key=lambda one: one[0])
    total_s = float(times.sum())
    return SampleCost(
        samples=len(walls),
        typical_s=float(np.median(times)),
        p95_s=float(np.percentile(times, 95)),
        longest_s=longest_s,
        slowest=slowest,
        cpu_share=min(sum(cpus) / total_s, 1.0) if total_s > 0 else 1.0,
        sample_bytes=sample_bytes,
    )


def function_profile(
    dataset: Any, seconds: float, *, clock: Clock = time.perf_counter
) -> tuple[ProfiledFunction, ...] | None:
    """Profile the functions that fetching samples spends its time in; None if another profiler is running."""
    profile = cProfile.Profile()
    begin = clock()
    try:
        for number, (_, get) in enumerate(_samples(dataset), start=1):
            if profile.runcall(get) is _NO_MORE:
                break
            if number >= _FEWEST_SAMPLES and clock() - begin >= seconds:
                break
    except ValueError as error:  # raised by Python 3.12; older versions silently take turns
        if "profil" not in str(error):
            raise
        return None
    return costly(pstats.Stats(profile))


def costly(stats: Any) -> tuple[ProfiledFunction, ...]:
    """The most expensive functions of a `pstats.Stats`, by the time spent in themselves."""
    entries = list(stats.stats.items())
    total_s = sum(own_s for _, (_, _, own_s, _, _) in entries)
    found = [
        ProfiledFunction(name, file, line, calls, own_s, own_s / total_s)
        for (file, line, name), (_, calls, own_s, _, _) in entries
        if total_s > 0 and own_s / total_s >= _SMALLEST_SHARE and _PROFILER not in name
    ]
    return tuple(sorted(found, key=lambda one: -one.own_s)[:_MOST_FUNCTIONS])


def _samples(dataset: Any) -> Iterator[tuple[int | None, Callable[[], Any]]]:
    """Yield a sample's index, if it has one, and a function that fetches it."""
    if is_iterable(dataset):
        stream = iter(dataset)
        for _ in range(_MOST_SAMPLES):
            yield None, partial(next, stream, _NO_MORE)
        return
    generator = torch.Generator().manual_seed(_SEED)
    for index in torch.randperm(len(dataset), generator=generator)[:_MOST_SAMPLES].tolist():
        yield index, partial(operator.getitem, dataset, index)
