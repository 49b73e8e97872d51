"""Quick measurements of a loader: how fast it can go, and how much of a training step it would take."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from unstarve.collect.describe import batch_extent
from unstarve.errors import UsageError
from unstarve.evaluate.handbook.measured import LoaderThroughput, LoadingOverhead
from unstarve.loader_proxy import check_loader

_DEFAULT_COMPUTE_S = 0.01


def measure_loading_overhead(
    loader: Iterable[Any],
    num_batches: int = 50,
    compute_time: float | None = None,
    *,
    compute: Callable[[Any], object] | None = None,
) -> LoadingOverhead:
    """Iterate over `loader` as a training loop would and tell loading from computing.

    Computing is simulated by sleeping `compute_time` seconds a batch (0.01 by default), which leaves the
    CPU to the workers as a GPU step would; or it is `compute(batch)`. If that uses CUDA, the device is
    waited for after each call, so that its work is not billed to loading; work that would overlap with
    loading then does not. A loader shorter than `num_batches` is measured as far as it goes.
    """
    _check_count("num_batches", num_batches, least=1)
    step = _simulated(compute_time) if compute is None else _synchronized(compute, compute_time)
    start_s, iterator = _started(loader)
    begin = end = time.perf_counter()
    loads_s: list[float] = []
    computes_s: list[float] = []
    for load_s, batch in _timed(iterator):
        got = time.perf_counter()
        step(batch)
        end = time.perf_counter()
        loads_s.append(load_s)
        computes_s.append(end - got)
        if len(loads_s) == num_batches:
            break
    return LoadingOverhead(
        num_batches=len(loads_s),
        requested=num_batches,
        start_time=start_s,
        load_time=sum(loads_s),
        compute_time=sum(computes_s),
        total_time=end - begin,
    )


def measure_throughput(
    loader: Iterable[Any], num_batches: int | None = None, *, warmup: int = 3
) -> LoaderThroughput:
    """Take `num_batches` batches (by default the whole epoch) as fast as `loader` gives them.

    The first `warmup` batches are taken before the clock starts: they pay for starting workers and filling
    the pipeline. A loader without an end needs `num_batches`.
    """
    if num_batches is not None:
        _check_count("num_batches", num_batches, least=1)
    _check_count("warmup", warmup, least=0)
    start_s, iterator = _started(loader)
    skipped = sum(1 for _ in itertools.islice(iterator, warmup))
    loads_s: list[float] = []
    extents: list[tuple[int, int]] = []
    for load_s, batch in _timed(iterator):
        loads_s.append(load_s)
        extents.append(_extent(batch))
        if len(loads_s) == num_batches:
            break
    return LoaderThroughput(
        num_batches=len(loads_s),
        requested=num_batches,
        warmup=skipped,
        start_time=start_s,
        total_time=sum(loads_s),
        samples=_total(size for size, _ in extents),
        bytes=_total(nbytes for _, nbytes in extents),
    )


def _started(loader: Iterable[Any]) -> tuple[float, Iterator[Any]]:
    """Seconds that ``iter(loader)`` took, and its result."""
    check_loader(loader)
    begin = time.perf_counter()
    iterator = iter(loader)
    return time.perf_counter() - begin, iterator


def _timed(iterator: Iterator[Any]) -> Iterator[tuple[float, Any]]:
    """Each batch with the seconds that ``next()`` took; what the consumer does is not counted."""
    while True:
        asked = time.perf_counter()
        try:
            batch = next(iterator)
        except StopIteration:
            return
        yield time.perf_counter() - asked, batch


def _simulated(compute_time: float | None) -> Callable[[Any], None]:
    seconds = _DEFAULT_COMPUTE_S if compute_time is None else compute_time
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < math.inf:
        raise UsageError(f"compute_time is in seconds, 0 or more, not {compute_time!r}")
    return lambda batch: time.sleep(seconds)


def _synchronized(compute: Callable[[Any], object], compute_time: float | None) -> Callable[[Any], None]:
    if compute_time is not None:
        raise UsageError("give compute_time (to simulate) or compute (to call), not both")
    if not callable(compute):
        raise UsageError(f"compute is called with each batch, and {compute!r} cannot be called")

    def step(batch: Any) -> None:
        compute(batch)
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # untyped in torch
            torch.cuda.synchronize()

    return step


def _check_count(name: str, value: int, *, least: int) -> None:
    if type(value) is not int or value < least:
        raise UsageError(f"{name} is a whole number, at least {least}, not {value!r}")


def _extent(batch: Any) -> tuple[int, int]:
    try:
        return batch_extent(batch)
    except Exception:  # a sparse tensor, a foreign object: its size is not known, its time is
        return -1, -1


def _total(amounts: Iterable[int]) -> int | None:
    """Their sum; None if one of them is not known."""
    known = list(amounts)
    return None if any(amount < 0 for amount in known) else sum(known)
