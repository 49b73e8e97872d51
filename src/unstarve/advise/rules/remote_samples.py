"""Rules about samples that take time to arrive."""

from __future__ import annotations

import math
from dataclasses import replace

from unstarve.advise.diagnosis_facts import is_iterable, matters, stock_loader
from unstarve.advise.gain import UNCHANGED, free_step_s
from unstarve.advise.proposal import Edit, Proposal
from unstarve.advise.sample_facts import is_ours, is_random, may_be_wrapped
from unstarve.model import Cause, Demand, Diagnosis, Rejected, Scenario
from unstarve.words import duration

_BLOCKED = 0.5
"""A fetch that waits for at least this share of its time is limited by waiting."""
_MOST_THREADS = 32
_USUAL_QUEUE = 10
"""Samples that `AsyncPrefetchDataset` fetches ahead by default."""
_SAFE = "dataset[i] is called from several threads at once: the dataset must be thread-safe."
_AS_ONE_WORKER = Scenario(workers=1, left={"handoff": 0.0, "start": 0.0})
"""Threads of the training process fetch while the step runs, as one worker would that sends nothing."""
_DRAWN = "Random numbers are drawn in the order in which the threads run."


def fetch_ahead(d: Diagnosis) -> Proposal | None:
    """Threads wait as well as workers do, and start no process."""
    demand, loader, free = d.demand, stock_loader(d), free_step_s(d)
    if demand is None or loader is None or not free or not matters(d, Cause.REMOTE):
        return None
    if not may_be_wrapped(loader) or demand.remote_s < _BLOCKED * demand.fetch_s:
        return None
    threads = _threads(demand, free)
    if threads < 2:
        return None
    ahead = math.ceil(demand.samples or 1.0)
    return Proposal(
        "fetch-ahead",
        f"{threads} threads that fetch ahead",
        f"Fetch samples with {threads} threads: unstarve.AsyncPrefetchDataset",
        f"fetching a batch takes {duration(demand.fetch_s)}, including {duration(demand.remote_s)} of "
        "off-CPU waiting, in which other samples could be fetched",
        Edit(dataset=f"unstarve.AsyncPrefetchDataset({{}}, {_queue(ahead)}num_workers={threads})"),
        _threaded(demand, threads),
        worst=Scenario(left={"remote": 1 / min(threads, ahead)}),  # nothing is fetched ahead of a batch
        note=_SAFE if is_random(loader) is False else f"{_SAFE} {_DRAWN}",
        alone=True,
    )


def read_ahead(d: Diagnosis) -> Proposal | Rejected | None:
    """A stream has no samples to fetch together, but a thread can read it while the step runs."""
    demand, loader = d.demand, stock_loader(d)
    if demand is None or loader is None or demand.workers or not matters(d, Cause.REMOTE, Cause.DISK):
        return None
    if not is_iterable(loader) or is_ours(loader):
        return None
    blocked_s = demand.remote_s + demand.disk_s
    if blocked_s < _BLOCKED * demand.fetch_s:
        return None
    if loader.config.get("resumes") and "engine" not in loader.config:
        reason = "would lose the stream's place: the loader's state_dict asks the dataset"
        return Rejected("read-ahead", "a thread that reads ahead", reason)
    ahead = math.ceil(2 * (demand.samples or 1.0))
    return Proposal(
        "read-ahead",
        "a thread that reads ahead",
        "Read the stream ahead of training: unstarve.AsyncPrefetchDataset",
        f"reading a batch takes {duration(demand.fetch_s)}, including {duration(blocked_s)} of waiting, "
        "in which the step could run",
        Edit(dataset=f"unstarve.AsyncPrefetchDataset({{}}, queue_size={ahead})"),
        _AS_ONE_WORKER,
        worst=UNCHANGED,
        note=f"A thread of the training process iterates over the dataset. {_DRAWN}",
        alone=True,
    )


def _queue(samples: int) -> str:
    """The argument for this many samples ahead; nothing where the default is enough."""
    return "" if samples <= _USUAL_QUEUE else f"queue_size={samples}, "


def _threads(demand: Demand, free_s: float) -> int:
    """Threads in each process that fetches, so that waiting takes no longer than the step."""
    processes = max(demand.workers, 1)
    wanted = math.ceil(1.25 * demand.remote_s / processes / free_s)
    return min(max(wanted, 2), _MOST_THREADS, max(math.ceil(2 * (demand.samples or 1.0)), 2))


def _threaded(demand: Demand, threads: int) -> Scenario:
    if demand.workers:
        return Scenario(left={"remote": 1 / threads})
    return replace(_AS_ONE_WORKER, left={**_AS_ONE_WORKER.left, "remote": 1 / threads})
