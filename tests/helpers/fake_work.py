"""Synthetic work of workers on a fake clock: a test gives the cost of a batch in milliseconds."""

from __future__ import annotations

from unstarve.model import Batch, Work

MS = 1_000_000


def work_of(
    task: int,
    begin_ms: float,
    *,
    cpu_ms: float = 0.0,
    system_ms: float = 0.0,
    queued_ms: float | None = 0.0,
    blocked_ms: float = 0.0,
    delay_ms: float | None = None,
    asked_bytes: int | None = 0,
    storage_bytes: int | None = 0,
    collate_ms: float = 0.0,
    collate_system_ms: float = 0.0,
    collate_queued_ms: float | None = 0.0,
    collate_blocked_ms: float = 0.0,
    loader: int | None = None,
    iteration: int = 0,
    slow_index: int | None = None,
    slow_ms: float = 0.0,
    opens: int = 0,
    samples: int = 8,
    failed: bool = False,
    helped_ms: float = 0.0,
) -> Work:
    """Work that took as long as its parts: `system_ms` is part of `cpu_ms`, and so on for collating."""
    fetch_ms = cpu_ms + (queued_ms or 0.0) + blocked_ms
    collated_ms = collate_ms + (collate_queued_ms or 0.0) + collate_blocked_ms
    begin_ns = round(begin_ms * MS)
    return Work(
        loader=loader,
        iteration=iteration,
        task=task,
        samples=samples,
        received_ns=begin_ns,
        begin_ns=begin_ns,
        collate_ns=begin_ns + round(fetch_ms * MS),
        done_ns=begin_ns + round((fetch_ms + collated_ms) * MS),
        cpu_ns=round(cpu_ms * MS),
        system_ns=round(system_ms * MS),
        queued_ns=None if queued_ms is None else round(queued_ms * MS),
        asked_bytes=asked_bytes,
        storage_bytes=storage_bytes,
        delay_ns=None if delay_ms is None else round(delay_ms * MS),
        major_faults=0,
        switches=0,
        collate_cpu_ns=round(collate_ms * MS),
        collate_system_ns=round(collate_system_ms * MS),
        collate_queued_ns=None if collate_queued_ms is None else round(collate_queued_ms * MS),
        slow_index=slow_index,
        slow_ns=round(slow_ms * MS),
        opens=opens,
        failed=failed,
        helped_ns=round(helped_ms * MS),
    )


def batch_of(
    task: int | None,
    ask_ms: float,
    got_ms: float,
    *,
    sampler_ms: float = 0.0,
    wait_cpu_ms: float = 0.0,
    wait_queued_ms: float | None = 0.0,
    position: int | None = None,
    loader: int = 0,
    epoch: int = 0,
) -> Batch:
    """A delivered batch, by the milliseconds of its wait."""
    return Batch(
        loader=loader,
        epoch=epoch,
        position=(task if task is not None else 1) if position is None else position,
        ask_ns=round(ask_ms * MS),
        got_ns=round(got_ms * MS),
        size=8,
        nbytes=64,
        nested=False,
        thread=0,
        own_ns=0,
        task=task,
        sampler_ns=round(sampler_ms * MS),
        wait_cpu_ns=round(wait_cpu_ms * MS),
        wait_queued_ns=None if wait_queued_ms is None else round(wait_queued_ms * MS),
    )
