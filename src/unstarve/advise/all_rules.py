"""All rules, asked in order, and their advice, best first."""

from __future__ import annotations

from collections.abc import Callable

from unstarve.advise.rules import (
    batch_delivery,
    batch_timing,
    data_storage,
    image_decoding,
    unseen_batches,
    worker_count,
)
from unstarve.intervals import WORTH_MENTIONING
from unstarve.model import Advice, Diagnosis, State

Rule = Callable[[Diagnosis], Advice | None]

RULES: tuple[Rule, ...] = (
    worker_count.workers_past_the_cores,
    worker_count.workers_instead_of_none,
    worker_count.workers_on_idle_cores,
    image_decoding.decode_only_the_crop,
    worker_count.cheaper_samples,
    worker_count.fewer_workers,
    worker_count.more_cores,
    data_storage.deeper_disk_queue,
    data_storage.local_copy,
    data_storage.keep_in_memory,
    data_storage.pack_small_files,
    batch_delivery.no_workers,
    batch_delivery.vectorized_collate,
    batch_delivery.lighter_batches,
    batch_delivery.packed_fields,
    batch_delivery.fewer_pinned_tensors,
    batch_delivery.pinned_copies,
    batch_delivery.precomputed_indices,
    batch_timing.persistent_workers,
    batch_timing.lighter_dataset,
    batch_timing.any_order,
    batch_timing.deeper_prefetch,
    batch_timing.level_samples,
)
"""Advice with equal gains comes in this order."""

HOST_RULES: tuple[Rule, ...] = (batch_timing.lighter_loop,)
"""Rules about the loop, not its data: they apply to a fed training, too."""


def advise(diagnosis: Diagnosis) -> tuple[Advice, ...]:
    """What to change, largest predicted gain first; nothing when data is not the problem."""
    state = diagnosis.verdict.state
    if state is State.INCONCLUSIVE:
        watched = unseen_batches.watch_batches(diagnosis)
        return () if watched is None else (watched,)
    rules = HOST_RULES if state is State.FED else RULES + HOST_RULES
    found = [advice for rule in rules if (advice := rule(diagnosis)) is not None]
    worth = [a for a in found if a.speedup is None or a.speedup.predicted >= WORTH_MENTIONING]
    return _one_per_argument(sorted(worth, key=_gain, reverse=True))


def _gain(advice: Advice) -> float:
    return 0.0 if advice.speedup is None else advice.speedup.predicted


def _one_per_argument(ordered: list[Advice]) -> tuple[Advice, ...]:
    """Of several values for the same argument, only the best is kept."""
    kept: list[Advice] = []
    for advice in ordered:
        if not any(advice.change.keys() & other.change.keys() for other in kept):
            kept.append(advice)
    return tuple(kept)
