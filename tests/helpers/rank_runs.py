"""Ranks of a made-up training that meet at the end of each backward pass, on a fake clock."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from fakes import FakeTraining
from unstarve.model import Meeting, Process

MS = 1_000_000
Planted = Callable[[int, int], float]
"""Milliseconds by rank and step."""


def _never(rank: int, step: int) -> float:
    return 0.0


def met_job(
    ranks: int,
    steps: int,
    *,
    data: Planted = _never,
    forward: Planted = _never,
    backward: Planted = _never,
    after: Planted = _never,
    validation: Planted = _never,
    beside: Planted = _never,
    queued: Planted = _never,
    nbytes: Planted = lambda rank, step: 64,
    meets: Callable[[int], bool] = lambda step: True,
    per_host: int = 0,
    epoch_steps: int = 0,
) -> list[Process]:
    """A step takes 1 ms to wait for data, 5 ms forward, 3 ms backward, 1 ms to exchange, and what is planted.

    Clocks of different machines differ. With `per_host`, so many ranks share one.
    """
    trainings = [
        FakeTraining(rank=rank, now_ns=10**9 * (1 + (rank // per_host if per_host else 0)))
        for rank in range(ranks)
    ]
    for training in trainings:
        training.begin()
    offsets = [training.now_ns for training in trainings]
    found: list[list[Meeting]] = [[] for _ in range(ranks)]
    for step in range(steps):
        begins, computed = [], []
        for rank, training in enumerate(trainings):
            if step and epoch_steps and step % epoch_steps == 0:
                training.end()
                training.begin()
            training.take((1 + data(rank, step)) / 1e3)
            if beside(rank, step):
                if "second" not in training.loaders:
                    training.begin("second")
                training.take(beside(rank, step) / 1e3, name="second")
            training.spend((5 + forward(rank, step)) / 1e3)
            begins.append(training.now_ns)
            training.spend((3 + backward(rank, step)) / 1e3)
            computed.append(training.now_ns)
        passed = [at - offset for at, offset in zip(computed, offsets, strict=True)]
        for rank, training in enumerate(trainings):
            if meets(step):
                training.now_ns = offsets[rank] + max(passed) + MS
            left = training.now_ns
            training.spend(after(rank, step) / 1e3)
            if validation(rank, step):
                training.validate([(validation(rank, step) / 1e3, 0.0)])
            blocked = left - computed[rank]
            found[rank].append(Meeting(1, begins[rank], left, 0, blocked, 0, left, training.now_ns))
    processes = []
    for rank, training in enumerate(trainings):
        training.end()
        process = training.process()
        batches = tuple(
            batch._replace(
                nbytes=int(nbytes(rank, at)), step_queued_ns=int(queued(rank, max(at - 1, 0)) * MS)
            )
            for at, batch in enumerate(process.batches)
        )
        host = f"node{rank // per_host}" if per_host else "here"
        processes.append(
            dataclasses.replace(process, batches=batches, meetings=tuple(found[rank]), host=host)
        )
    return processes
