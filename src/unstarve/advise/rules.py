"""All rules, and what is made of their answers."""

from __future__ import annotations

from collections.abc import Callable

from unstarve.advise import batches, flow, images, storage, workers
from unstarve.intervals import WORTH_MENTIONING
from unstarve.model import Advice, Diagnosis, State

Rule = Callable[[Diagnosis], Advice | None]

RULES: tuple[Rule, ...] = (
    workers.workers_past_the_cores,
    workers.workers_instead_of_none,
    workers.workers_on_idle_cores,
    images.only_what_the_crop_needs,
    workers.cheaper_samples,
    workers.fewer_workers,
    workers.more_cores,
    storage.deeper_disk_queue,
    storage.local_copy,
    storage.keep_in_memory,
    storage.pack_small_files,
    batches.no_workers,
    batches.vectorized_collate,
    batches.lighter_batches,
    batches.packed_fields,
    batches.fewer_pinned_tensors,
    batches.pinned_copies,
    batches.precomputed_indices,
    flow.persistent_workers,
    flow.lighter_dataset,
    flow.any_order,
    flow.deeper_prefetch,
    flow.level_samples,
)
"""Where gains are equal, the order of advice."""

HOST_RULES: tuple[Rule, ...] = (flow.lighter_loop,)
"""About the loop, not its data: they hold for a training that is fed, too."""


def advise(diagnosis: Diagnosis) -> tuple[Advice, ...]:
    """What to change, the largest predicted gain first; nothing where data is not the problem."""
    state = diagnosis.verdict.state
    if state is State.INCONCLUSIVE:
        return ()
    rules = HOST_RULES if state is State.FED else RULES + HOST_RULES
    found = [advice for rule in rules if (advice := rule(diagnosis)) is not None]
    worth = [a for a in found if a.speedup is None or a.speedup.predicted >= WORTH_MENTIONING]
    return _one_per_argument(sorted(worth, key=_gain, reverse=True))


def _gain(advice: Advice) -> float:
    return 0.0 if advice.speedup is None else advice.speedup.predicted


def _one_per_argument(ordered: list[Advice]) -> tuple[Advice, ...]:
    """Two different numbers for one argument would leave the reader to choose: the better one stays."""
    kept: list[Advice] = []
    for advice in ordered:
        if not any(advice.change.keys() & other.change.keys() for other in kept):
            kept.append(advice)
    return tuple(kept)
