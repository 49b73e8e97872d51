"""Epochs → training or validation, from backward passes and from gradients being off.

Validation often runs inside the training loop: a backward pass belongs to the innermost step that it ran in.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from unstarve.model import Batch, Epoch, Process, Role

Key = tuple[int, int]
"""Loader and epoch."""


class _Work(NamedTuple):
    """What follows one batch: from its delivery to the next request of the same epoch."""

    key: Key
    got_ns: int
    until_ns: int | None
    """None for the last batch of an epoch that was abandoned."""


def epoch_roles(process: Process) -> dict[Key, Role]:
    """The role of every epoch that was not iterated inside another loader's ``next()``."""
    roles: dict[Key, Role] = {}
    for thread in {epoch.thread for epoch in process.epochs}:
        epochs = [e for e in process.epochs if e.thread == thread and not e.nested]
        works = _works([b for b in process.batches if b.thread == thread and not b.nested], epochs)
        passes = [backward.at_ns for backward in process.backwards if backward.thread == thread]
        without = {(e.loader, e.epoch) for e in epochs if e.no_grad}
        trained = _with_backward(works, passes, without)
        roles |= _roles(epochs, works, trained)
    return roles


def loader_role(loader: int, roles: Mapping[Key, Role]) -> Role:
    """The role of a loader: training, if any of its epochs trained."""
    found = {role for (number, _), role in roles.items() if number == loader}
    return next((role for role in (Role.TRAIN, Role.VALIDATION) if role in found), Role.UNKNOWN)


def _works(batches: Sequence[Batch], epochs: Sequence[Epoch]) -> list[_Work]:
    """In the order of delivery."""
    next_ask: dict[Key, int | None] = {(e.loader, e.epoch): e.last_ask_ns for e in epochs}
    works = []
    for batch in reversed(batches):
        key = batch.loader, batch.epoch
        works.append(_Work(key, batch.got_ns, next_ask.get(key)))
        next_ask[key] = batch.ask_ns
    return works[::-1]


def _with_backward(works: Sequence[_Work], passes: Sequence[int], without: set[Key]) -> set[Key]:
    """The epochs whose own steps ran a backward pass; those in `without` had gradients off."""
    found: set[Key] = set()
    current: list[_Work] = []
    delivered = 0
    for at_ns in passes:
        while delivered < len(works) and works[delivered].got_ns <= at_ns:
            current.append(works[delivered])
            delivered += 1
        current = [work for work in current if work.until_ns is not None and work.until_ns > at_ns]
        if current:
            # A loop with gradients may contain one without: adversarial examples need a backward pass, too.
            inside = _innermost([work for work in current if work.key not in without] or current)
            found |= {work.key for work in inside}
        elif delivered and works[delivered - 1].until_ns is None:
            found.add(works[delivered - 1].key)  # ``next(iter(loader))`` in every step
    return found


def _innermost(works: Sequence[_Work]) -> list[_Work]:
    """Without works that contain another. Loaders iterated side by side only overlap: all of them stay."""

    def contains(outer: _Work, inner: _Work) -> bool:
        begins = outer.got_ns <= inner.got_ns
        return begins and outer is not inner and (inner.until_ns or 0) <= (outer.until_ns or 0)

    return [work for work in works if not any(contains(work, other) for other in works)]


def _roles(epochs: Sequence[Epoch], works: Sequence[_Work], trained: set[Key]) -> dict[Key, Role]:
    last_got: dict[Key, int] = {work.key: work.got_ns for work in works}
    stepped = {work.key for work in works if work.until_ns is not None}
    begins = sorted(e.begin_ns for e in epochs if (e.loader, e.epoch) in trained)
    roles: dict[Key, Role] = {}
    for epoch in epochs:
        key = epoch.loader, epoch.epoch
        end_ns = epoch.end_ns or last_got.get(key, epoch.ready_ns)
        contains_training = bisect_left(begins, end_ns) > bisect_right(begins, epoch.begin_ns)
        if key in trained:
            roles[key] = Role.TRAIN
        elif epoch.no_grad or (trained and key in stepped and not contains_training):
            roles[key] = Role.VALIDATION
        else:
            roles[key] = Role.UNKNOWN
    return roles
