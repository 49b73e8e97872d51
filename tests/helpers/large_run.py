"""A run of many steps and workers on a fake clock."""

from __future__ import annotations

import dataclasses

from fake_work import MS, work_of
from fakes import FakeTraining, run_of
from unstarve.model import Crew, Loader, Process, Received, Run, Sent


def large_run(steps: int, workers: int, name: str = "train") -> Run:
    """`workers` make batches in turn; every wait is a little different."""
    training = FakeTraining()
    training.begin(name)
    for step in range(steps):
        training.take(0.003 + step * 7919 % 100 / 1e5, name)
        training.spend(0.001 + step * 104729 % 100 / 1e5)
    training.end(name)
    process = training.process()
    pids = tuple(200 + place for place in range(workers))
    batches = tuple(b._replace(task=b.position, ready=b.position % 5) for b in process.batches)
    crew = [_worker(process, pid, place, workers) for place, pid in enumerate(pids)]
    receipts = tuple(
        Received(0, 0, w.task, w.done_ns + MS, w.done_ns + MS, w.done_ns + MS) for p in crew for w in p.works
    )
    loaders = (Loader(0, name, "train.py:15", "DataLoader", {"num_workers": workers, "batch_size": 8}),)
    main = dataclasses.replace(
        process, batches=batches, loaders=loaders, receipts=receipts, crews=(Crew(0, 0, pids),)
    )
    return run_of(main, *crew)


def _worker(process: Process, pid: int, place: int, workers: int) -> Process:
    works = tuple(
        work_of(b.position, b.ask_ns / MS - 8, cpu_ms=6 + b.position % 3, collate_ms=0.7)
        for b in process.batches
        if b.position % workers == place
    )
    sents = tuple(Sent(w.task, 0, w.done_ns, w.done_ns, w.done_ns + MS // 3, MS // 4) for w in works)
    return dataclasses.replace(
        process, pid=pid, worker=True, works=works, sents=sents, batches=(), epochs=(), loaders=()
    )
