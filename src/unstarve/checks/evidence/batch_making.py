"""How batches are made, sent and ordered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath

from unstarve.advise.diagnosis_facts import batch_bytes, stock_loader, worker_loader, workers_of
from unstarve.checks.evidence.lost_time import (
    LEAST_SHARE,
    advised,
    cost,
    lost_share,
    rejected,
    setting,
    waits,
)
from unstarve.checks.evidence.places import about
from unstarve.model import Cause, Diagnosis, Finding, Run
from unstarve.words import duration, mean_count, percent, size, times

_MANY_TENSORS = 16
_SLOW_SHARE = 0.1
"""Of the fetching time."""
_SLOW_NS = 20_000_000
"""Less may be a pause of the machine."""


def no_workers(run: Run, d: Diagnosis) -> Iterator[Finding]:
    """Training that waits while it makes its own batches, where workers are the first advice."""
    loader, more = worker_loader(d), advised(d, "use-workers", "more-workers")
    if loader is None or not waits(d) or workers_of(d) or d.demand is None:
        return
    if more is None or more is not d.advice[0]:
        return
    lost = lost_share(d)
    yield about(
        loader,
        "no-workers",
        f"{loader.name} has no workers, and making its batches takes {percent(lost)} of the time "
        f"({duration(d.demand.fetch_s + d.demand.collate_s)} each).",
        setting(loader, **more.change),
        lost,
    )


def no_getitems(run: Run, d: Diagnosis) -> Iterator[Finding]:
    """Rows of tensors that are fetched one by one."""
    loader = stock_loader(d)
    lost = cost(d, Cause.CPU, Cause.COLLATE, Cause.HANDOFF, Cause.STARTUP)
    if loader is None or not waits(d) or advised(d, "rows-in-memory", "no-workers-to-start") is None:
        return
    if lost < LEAST_SHARE:
        return
    yield about(
        loader,
        "no-getitems",
        f"{loader.name} reads tensors that are in memory row by row; making and sending batches of them "
        f"takes {percent(lost)} of the time.",
        f"Use unstarve.DataLoader for {loader.name}: it indexes the tensors once per batch.",
        lost,
    )


def order(run: Run, d: Diagnosis) -> Iterator[Finding]:
    """Finished batches that wait for a late one."""
    loader, change = worker_loader(d), advised(d, "any-order", "level-samples")
    if loader is None or not waits(d) or change is None or cost(d, Cause.ORDER) < LEAST_SHARE:
        return
    tail = "" if d.demand is None else f"; the slowest batches take {times(d.demand.tail)} the typical time"
    any_order = change.id == "any-order"
    yield about(
        loader,
        "order",
        f"Training waits {percent(cost(d, Cause.ORDER))} of the time for a late batch while later ones are "
        f"ready{tail}.",
        setting(loader, in_order=False) if any_order else f"{change.title}.",
        cost(d, Cause.ORDER),
    )


def slow_sample(run: Run, d: Diagnosis) -> Iterator[Finding]:
    """A few samples that take much of the fetching time."""
    if not d.slow_samples or not waits(d):
        return
    # The first fetch of a process also imports and opens what later ones find ready.
    works = [work for process in run.processes for work in process.works[1:] if not work.failed]
    limit_ns = max(d.slow_samples[-1].ms * 1e6, _SLOW_NS)
    slow = [w for w in works if w.slow_index is not None and w.slow_ns - (w.queued_ns or 0) >= limit_ns]
    times_slow = Counter(work.slow_index for work in slow)
    loader = stock_loader(d)
    again = 1 if loader is None or loader.epochs <= d.ranks else 2  # otherwise it was slow by chance
    found = [sample for sample in d.slow_samples if times_slow[sample.index] >= again]
    fetching_ns = sum(work.collate_ns - work.begin_ns for work in works)
    known = {sample.index for sample in found}
    slow_ns = sum(work.slow_ns for work in slow if work.slow_index in known)
    share = slow_ns / fetching_ns if fetching_ns else 0.0
    harm = share * lost_share(d)
    if not found or share < _SLOW_SHARE or harm < LEAST_SHARE:
        return
    worst = found[0]
    named = f"sample {worst.index}" if worst.file is None else PurePath(worst.file).name
    many = f"The {len(found)} slowest samples take" if len(found) > 1 else "One slow sample takes"
    yield about(
        loader,
        "slow-sample",
        f"{many} {percent(share)} of the fetching time; {named} alone takes {duration(worst.ms / 1e3)}.",
        f"Prepare {named} in advance, make it smaller, or leave it out.",
        harm,
    )


def many_tensors(run: Run, d: Diagnosis) -> Iterator[Finding]:
    """Batches of many tensors, whose hand-off costs time."""
    loader, share = worker_loader(d), cost(d, Cause.HANDOFF)
    if loader is None or not waits(d) or not workers_of(d) or share < LEAST_SHARE or d.demand is None:
        return
    if (loader.tensors or 0) < _MANY_TENSORS or "engine" in loader.config or rejected(d, "ring-engine"):
        return
    nbytes = batch_bytes(d)
    of_size = "" if nbytes is None else f" of {size(nbytes / (loader.tensors or 1))} each"
    yield about(
        loader,
        "many-tensors",
        f"A batch of {loader.name} is {mean_count(loader.tensors or 0)} tensors{of_size}; handing it over "
        f"takes {duration(d.demand.handoff_s)}, and waiting for that {percent(share)} of the time.",
        f"Use unstarve.DataLoader for {loader.name}: it hands a batch over in one piece of memory.",
        share,
    )


def not_pinned(run: Run, d: Diagnosis) -> Iterator[Finding]:
    """Copies to the device that block training."""
    loader, share = stock_loader(d), cost(d, Cause.COPY)
    if loader is None or not waits(d) or share < LEAST_SHARE or advised(d, "pin-memory") is None:
        return
    yield about(
        loader,
        "not-pinned",
        f"Copies of {loader.name}'s batches from pageable memory take {percent(share)} of the time.",
        setting(loader, pin_memory=True)[:-1] + ", and copy with .to(device, non_blocking=True).",
        share,
    )


def slow_sampler(run: Run, d: Diagnosis) -> Iterator[Finding]:
    """Indices that training waits for."""
    loader, share = stock_loader(d), cost(d, Cause.SAMPLER)
    if loader is None or not waits(d) or share < LEAST_SHARE or d.demand is None:
        return
    own = loader.config.get("batch_sampler")
    sampler = own if own not in (None, "BatchSampler") else loader.config.get("sampler") or "The sampler"
    yield about(
        loader,
        "slow-sampler",
        f"{sampler} takes {duration(d.demand.sampler_s)} to draw the indices of a batch; training waits for "
        f"it {percent(share)} of the time.",
        "Draw all indices of an epoch at once, as an array, and only as many as it uses.",
        share,
    )
