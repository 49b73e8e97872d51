"""Processes that wait for a core: too many workers, their threads, a quota, an affinity."""

from __future__ import annotations

from collections.abc import Iterator

from unstarve.advise.diagnosis_facts import usable_cores, worker_loader, workers_of
from unstarve.analyze.timeline import training_processes
from unstarve.checks.evidence.lost_time import LEAST_SHARE, advised, cost, setting
from unstarve.checks.evidence.places import about
from unstarve.model import Cause, Diagnosis, Finding, Run
from unstarve.words import mean_count, percent, workers


def more_workers_than_cores(run: Run, d: Diagnosis) -> Iterator[Finding]:
    """Workers that take turns on the cores, where fewer of them would be faster."""
    loader, cores, fewer = worker_loader(d), usable_cores(d), advised(d, "fewer-workers")
    if loader is None or cores is None or fewer is None or not _crowded(d):
        return
    yield about(
        loader,
        "more-workers-than-cores",
        f"{workers(workers_of(d))} share {_cores(cores)} with training, which waits for a core "
        f"{percent(cost(d, Cause.CONTENTION))} of the time.",
        setting(loader, num_workers=fewer.change["num_workers"]),
        cost(d, Cause.CONTENTION),
    )


def threads_per_worker(run: Run, d: Diagnosis) -> Iterator[Finding]:
    """Workers whose libraries compute with several threads each."""
    loader, one_thread = worker_loader(d), advised(d, "one-thread-per-worker")
    if loader is None or d.demand is None or one_thread is None or not _crowded(d):
        return
    helped = d.demand.helped_s / (d.demand.cpu_s + d.demand.helped_s)
    yield about(
        loader,
        "threads-per-worker",
        f"Other threads do {percent(helped)} of the computing in {workers(workers_of(d))}; training waits "
        f"for a core {percent(cost(d, Cause.CONTENTION))} of the time.",
        one_thread.command,
        cost(d, Cause.CONTENTION),
    )


def throttled(run: Run, d: Diagnosis) -> Iterator[Finding]:
    """A CPU quota that was used up again and again."""
    before, now = d.system.get("usage_before") or {}, d.system.get("usage") or {}
    quota, counts = d.system.get("quota_cores"), ("periods", "throttled")
    if quota is None or not _crowded(d) or any(one.get(n) is None for one in (before, now) for n in counts):
        return
    periods, stopped = (now[name] - before[name] for name in counts)
    if periods <= 0 or stopped / periods < LEAST_SHARE:
        return
    count = max(int(quota), 1)
    yield about(
        worker_loader(d),
        "throttled",
        f"The quota of {_cores(quota)} was used up in {percent(min(stopped / periods, 1.0))} of its periods; "
        f"training waits for a core {percent(cost(d, Cause.CONTENTION))} of the time.",
        f"Raise the container's CPU quota, or use at most {workers(count)} and OMP_NUM_THREADS={count}.",
        cost(d, Cause.CONTENTION),
    )


def worker_affinity(run: Run, d: Diagnosis) -> Iterator[Finding]:
    """Workers that may run on fewer cores than their training process started with."""
    loader, trainer = worker_loader(d), next(iter(training_processes(run)), None)
    if loader is None or trainer is None or not _crowded(d):
        return
    pids = {pid for crew in trainer.crews for pid in crew.pids}
    crew = [p for p in run.processes if p.worker and p.host == trainer.host and p.pid in pids]
    confined = {core for worker in crew for core in worker.system.get("affinity") or ()}
    first = trainer.system.get("first_cores")
    if not confined or not first or len(confined) >= min(first, workers_of(d)):
        return
    yield about(
        loader,
        "worker-affinity",
        f"{workers(workers_of(d))} may use {_cores(len(confined))}; the training process started with "
        f"{first}, and now waits for a core {percent(cost(d, Cause.CONTENTION))} of the time.",
        f"Call os.sched_setaffinity(0, range(os.cpu_count())) in the worker_init_fn of {loader.name}.",
        cost(d, Cause.CONTENTION),
    )


def _crowded(d: Diagnosis) -> bool:
    return d.kind == "run" and cost(d, Cause.CONTENTION) >= LEAST_SHARE


def _cores(count: float) -> str:
    return "1 core" if count == 1 else f"{mean_count(count)} cores"
