"""Batches of the recorded loader as another loader would make them: moved into or out of workers, or resized.

A run without workers says nothing about the hand-off, and a run with workers little about loading without
them: there the machine's `LoadingCosts` stand in.
"""

from __future__ import annotations

from unstarve.predict.demand import BatchDemand
from unstarve.predict.machine_times import LoadingCosts

USUAL_TENSORS = 2
"""Inputs and targets, where tensors were not counted."""
_SWITCH_S = 5e-3
"""A worker that computes in Python gives its interpreter lock away only this often."""
_RELEASE_SHARE = 0.06
"""Closing the batch's descriptors after the step, relative to taking it."""
_LARGEST_REUSED_BYTES = 32 << 20
"""glibc gives larger blocks back to the kernel when they are freed: then even the training process builds
every batch in fresh memory."""
_MOST_OF_A_STEP = 0.5
"""At most this share of a step is attributed to the hand-off."""


def in_workers(
    batch: BatchDemand,
    cost: LoadingCosts,
    nbytes: float,
    tensors: float,
    memory_s: float,
    *,
    pinned: bool,
    factor: float,
) -> BatchDemand:
    """A batch of the training process, if a worker made it instead; `factor` scales the hand-off.

    `memory_s` is kernel time for the memory of the batch, which a worker spends on shared memory instead.
    """
    touch_s = cost.touch_s_per_byte * nbytes * factor
    share_s = cost.share_s + cost.share_s_per_tensor * tensors + cost.share_s_per_byte * nbytes
    take_s = (cost.take_s + cost.take_s_per_tensor * tensors) * factor
    return batch._replace(
        collate_s=max(batch.collate_s - memory_s, 0.0) + share_s * factor,
        send_s=(cost.send_s + cost.send_s_per_tensor * tensors) * factor,
        send_delay_s=cost.send_delay_s * factor,
        take_s=take_s,
        take_delay_s=(cost.take_delay_s + cost.take_delay_s_per_tensor * tensors) * factor,
        busy_delay_s=_SWITCH_S * factor,
        pin_s=batch.pin_s + touch_s if pinned else batch.pin_s,
        step_s=batch.step_s + _held_s(cost, touch_s, take_s, pinned=pinned),
    )


def in_line(
    batch: BatchDemand, cost: LoadingCosts, nbytes: float, tensors: float, memory_s: float, *, pinned: bool
) -> BatchDemand:
    """A worker's batch, if the training process made it instead.

    `memory_s` is kernel time for fresh memory, which the training process saves by reusing its own. Memory
    for a batch that is too large for that only costs less than shared memory.
    """
    made_s = batch.cpu_s + batch.collate_s
    saved_s = max(memory_s, cost.share_s + cost.share_s_per_tensor * tensors)
    if nbytes <= _LARGEST_REUSED_BYTES:
        saved_s += cost.fresh_s_per_byte * nbytes
    else:
        saved_s = max(saved_s - cost.private_s_per_byte * nbytes, 0.0)
    left = 1 - min(saved_s, 0.9 * made_s) / made_s if made_s else 1.0
    touch_s = cost.touch_s_per_byte * nbytes
    held_s = _held_s(cost, touch_s, batch.take_s, pinned=pinned)
    return batch._replace(
        cpu_s=batch.cpu_s * left,
        collate_s=batch.collate_s * left,
        send_s=0.0,
        send_delay_s=0.0,
        take_s=cost.in_line_s,
        take_delay_s=0.0,
        busy_delay_s=0.0,
        pin_s=max(batch.pin_s - touch_s, 0.1 * batch.pin_s) if pinned else 0.0,
        step_s=batch.step_s - min(held_s, _MOST_OF_A_STEP * batch.step_s),
    )


def _held_s(cost: LoadingCosts, touch_s: float, take_s: float, *, pinned: bool) -> float:
    """How much longer a step takes on a batch made by a worker."""
    return (0.0 if pinned else touch_s + _RELEASE_SHARE * take_s) + cost.disturbed_s


def resized(
    batch: BatchDemand, cost: LoadingCosts, ratio: float, nbytes: float, step_power: float
) -> BatchDemand:
    """A batch of `ratio` times as many samples; its step takes ``ratio ** step_power`` times as long."""
    more_bytes = nbytes * (ratio - 1)
    return batch._replace(
        cpu_s=batch.cpu_s * ratio,
        collate_s=batch.collate_s * ratio,
        blocked_s=batch.blocked_s * ratio,
        late_s=batch.late_s * ratio,
        disk_s=batch.disk_s * ratio,
        index_s=batch.index_s * ratio,
        pin_s=max(batch.pin_s + cost.touch_s_per_byte * more_bytes, 0.0) if batch.pin_s else 0.0,
        step_s=batch.step_s * ratio**step_power,
        step_delay_s=batch.step_delay_s * ratio**step_power,
        ahead_s=batch.ahead_s * ratio**step_power,
    )
