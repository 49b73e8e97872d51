"""Time that is lost when an epoch begins."""

from __future__ import annotations

import math
from collections.abc import Iterator

from unstarve.advise.diagnosis_facts import worker_loader, workers_of
from unstarve.analyze.loader_summary import loader_key
from unstarve.analyze.timeline import training_processes
from unstarve.checks.evidence.lost_time import LEAST_SHARE, cost, rejected, setting, waits
from unstarve.checks.evidence.places import about
from unstarve.model import Cause, Diagnosis, Finding, LoaderSummary, Run
from unstarve.words import duration, mean_count, percent, size, workers

_STANDS_OUT = 2.0
"""A start that takes this many times as long as a typical wait is a pause."""
_LONG_START_S = 10.0
_FULL_PIPELINES = 10
"""An epoch of this many full pipelines loses little at its start."""


def workers_each_epoch(run: Run, d: Diagnosis) -> Iterator[Finding]:
    """Workers that end with their epoch."""
    loader, share = worker_loader(d), cost(d, Cause.STARTUP)
    if loader is None or not waits(d) or not workers_of(d) or share < LEAST_SHARE:
        return
    if loader.config.get("persistent_workers") or rejected(d, "persistent-workers"):
        return
    starts = _starts(run, loader)
    later = starts[1:]
    typical_s = 0.0 if loader.wait_ms is None else loader.wait_ms.p50 / 1e3
    if not later or sum(later) / len(later) < _STANDS_OUT * typical_s:
        return
    yield about(
        loader,
        "workers-each-epoch",
        f"Each of {len(starts)} epochs starts {workers(workers_of(d))} and waits "
        f"{duration(sum(later) / len(later))} for its first batch, {percent(share)} of the time in all; a "
        f"typical wait takes {duration(typical_s)}.",
        setting(loader, persistent_workers=True),
        share,
    )


def tiny_epochs(run: Run, d: Diagnosis) -> Iterator[Finding]:
    """Epochs that end before the pipeline is full, although workers are kept."""
    loader, share = worker_loader(d), cost(d, Cause.STARTUP)
    if loader is None or not waits(d) or not workers_of(d) or loader.epochs < 3 or share < LEAST_SHARE:
        return
    ahead = workers_of(d) * int(loader.config.get("prefetch_factor") or 2)
    batches = loader.steps / loader.epochs
    if batches >= ahead or not loader.config.get("persistent_workers"):
        return
    passes = math.ceil(_FULL_PIPELINES * ahead / batches)
    yield about(
        loader,
        "tiny-epochs",
        f"An epoch of {loader.name} has {mean_count(round(batches, 1))} batches, but its workers prefetch "
        f"{ahead}: waiting for first batches takes {percent(share)} of the time.",
        f"Make one epoch of {passes} passes: "
        f"sampler=RandomSampler(dataset, num_samples={passes} * len(dataset)).",
        share,
    )


def large_pickled_dataset(run: Run, d: Diagnosis) -> Iterator[Finding]:
    """A dataset that each worker receives as a copy."""
    loader, share = worker_loader(d), cost(d, Cause.STARTUP)
    if loader is None or not waits(d) or not workers_of(d) or share < LEAST_SHARE:
        return
    method = loader.config.get("multiprocessing_context")
    name, nbytes = loader.dataset.get("largest_attribute"), loader.dataset.get("largest_bytes")
    if method not in ("spawn", "forkserver") or not isinstance(name, str) or not isinstance(nbytes, int):
        return
    yield about(
        loader,
        "large-pickled-dataset",
        f"With {method}, {name} ({size(nbytes)}) is pickled for each of {workers(workers_of(d))}; "
        f"starts take {percent(share)} of the time.",
        "dataset = unstarve.share(dataset)  # pickles a handle instead of the data",
        share,
    )


def slow_start(run: Run, d: Diagnosis) -> Iterator[Finding]:
    """A first batch that takes long."""
    loader = worker_loader(d)
    if loader is None or d.kind != "run" or not d.wall_s:
        return
    first_s = next(iter(_starts(run, loader)), 0.0)
    if first_s < _LONG_START_S or first_s < LEAST_SHARE * d.wall_s:
        return
    yield about(
        loader,
        "slow-start",
        f"The first batch of {loader.name} came {duration(first_s)} after iter(), "
        f"{percent(first_s / d.wall_s)} of the run.",
        "Open files and load tables in __getitem__, on first use; keep workers with persistent_workers=True."
        if workers_of(d)
        else "Build indices and read tables once, and save them to a file.",
        first_s / d.wall_s,
    )


def _starts(run: Run, loader: LoaderSummary) -> list[float]:
    """Seconds from ``iter()`` to the first batch of each epoch, in the process that trains first."""
    for process in training_processes(run)[:1]:
        own = {one.id for one in process.loaders if loader_key(one) == loader_key(loader)}
        first = {(b.loader, b.epoch): b.wait_ns for b in process.batches if b.position == 0}
        return [
            (epoch.ready_ns - epoch.begin_ns + first[epoch.loader, epoch.epoch]) / 1e9
            for epoch in process.epochs
            if epoch.loader in own and (epoch.loader, epoch.epoch) in first
        ]
    return []
