"""Messages of workers → what one more costs the thread that receives them, apart from those before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from unstarve.analyze.batch_production import EpochProduction
from unstarve.model import Batch, Received

_HELD = 2
"""Steps that may use a batch: the one on it, and the next, beside which an accelerator may still copy it."""

Key = tuple[int, int]
"""Epoch and task."""


class Reception(NamedTuple):
    """One message, as the receiving thread saw it."""

    free_ns: int
    """When the thread was done with the message before; 0 for the first of an epoch."""
    pin_ns: float
    """Pinning such a batch in memory that is pinned already; 0 without a pin thread."""


def receptions(batches: Sequence[Batch], made: Mapping[int, EpochProduction]) -> dict[Key, Reception]:
    """Every received message of a loader; `batches` are all those delivered, `made` is keyed by epoch."""
    found = [
        ((epoch, one.received.task), one.received)
        for epoch, production in made.items()
        for one in production.by_task.values()
        if one.received is not None
    ]
    found.sort(key=lambda message: message[1].arrived_ns)
    pin_ns = _pin_ns(found, batches)
    free_ns = {after: one.pinned_ns for (key, one), (after, _) in pairwise(found) if key[0] == after[0]}
    return {key: Reception(free_ns.get(key, 0), pin_ns[key]) for key, _ in found}


def _pin_ns(found: Sequence[tuple[Key, Received]], batches: Sequence[Batch]) -> dict[Key, float]:
    """How long pinning takes; for a batch that needed more pinned memory than ever before, the others' mean.

    torch pins memory when none of what it has pinned before is free, which takes several times as long as the
    copy. So a queue that fills for the first time makes pinning slow, and the same queue later on does not.
    """
    released_ns = _released_ns(batches)
    took_ns: dict[Key, float] = {key: one.pinned_ns - one.ready_ns for key, one in found}
    new: set[Key] = set()
    held: list[int] = []
    most = 0
    for key, one in found:
        held = [until_ns for until_ns in held if until_ns > one.ready_ns]
        if key in released_ns:
            held.append(released_ns[key])
        if len(held) > most:
            most = len(held)
            new.add(key)
    again_ns = [ns for key, ns in took_ns.items() if key not in new]
    return took_ns | dict.fromkeys(new, fmean(again_ns)) if again_ns else took_ns


def _released_ns(batches: Sequence[Batch]) -> dict[Key, int]:
    """When training was done with the memory of each batch, if it was delivered and kept one by one."""
    return {
        (one.epoch, one.task): later.ask_ns
        for one, later in zip(batches, batches[_HELD:], strict=False)
        if one.task is not None
    }
