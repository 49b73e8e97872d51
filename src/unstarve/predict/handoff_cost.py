"""The cost of the hand-off where it was not recorded, and batches moved into or out of workers.

A run without workers says nothing about the hand-off, and a run with workers little about loading without
them. These constants were measured with stock torch 2.11 and 2.13 (Linux, fork, file descriptors) for
batches of 1 to 60 tensors and 2 KB to 20 MB, on two and four CPU cores. Taking a batch cost 0.2 ms per
tensor in early measurements and 0.5 ms in later ones; the constants lie between the two.
"""

from __future__ import annotations

from unstarve.predict.demand import BatchDemand

SEND_S, SEND_S_PER_TENSOR = 0.15e-3, 0.07e-3
"""Sending thread, CPU: pickling a handle for each tensor."""
SEND_DELAY_S = 0.3e-3
TAKE_S, TAKE_S_PER_TENSOR = 0.35e-3, 0.24e-3
"""Training thread, CPU: the message, each tensor's descriptor and mapping, the next index."""
TAKE_DELAY_S, TAKE_DELAY_S_PER_TENSOR = 0.15e-3, 0.14e-3
"""Training thread: waiting for the worker to hand out each descriptor."""
BUSY_DELAY_S = 5e-3
"""Added while the worker computes in Python: it must get its interpreter lock first."""
SHARE_S, SHARE_S_PER_TENSOR = 0.12e-3, 0.06e-3
"""Worker, CPU: creating shared memory."""
SHARE_S_PER_BYTE = 0.7e-9
"""Worker, CPU: the kernel maps fresh pages of shared memory for a large batch."""
TOUCH_S_PER_BYTE = 0.25e-9
"""First reader of the batch, the step or the pin thread: mapping the same pages again, and unmapping."""
FRESH_S_PER_BYTE = 0.25e-9
"""Worker, besides the kernel's time: fresh memory is in no cache."""
RELEASE_SHARE = 0.06
"""Closing the batch's descriptors after the step, relative to taking it."""
IN_LINE_S = 0.08e-3
"""Training thread, without workers: cost of a batch besides its samples and collating."""
DISTURBED_S = 0.25e-3
"""Added to a step by workers that write, send and wake up beside it."""
USUAL_TENSORS = 2
"""Inputs and targets, where tensors were not counted."""

WORKER_START_S = 9e-3
"""Training thread: forking one worker."""
WORKER_BOOT_S = 12e-3
"""Worker, CPU, until its first batch."""
SPAWN_BOOT_S = 2.5
"""The same for a spawned worker, which starts Python and imports torch first."""
END_S, END_S_PER_WORKER = 10e-3, 2.5e-3
"""Training thread: ending the workers of an epoch."""
_MOST_OF_A_STEP = 0.5
"""At most this share of a step is attributed to the hand-off."""


def in_workers(
    batch: BatchDemand, nbytes: float, tensors: float, *, pinned: bool, factor: float = 1.0
) -> BatchDemand:
    """A batch of the training process, if a worker made it instead; `factor` scales the hand-off."""
    touch_s = TOUCH_S_PER_BYTE * nbytes * factor
    share_s = SHARE_S + SHARE_S_PER_TENSOR * tensors + SHARE_S_PER_BYTE * nbytes
    take_s = (TAKE_S + TAKE_S_PER_TENSOR * tensors) * factor
    return batch._replace(
        collate_s=batch.collate_s + share_s * factor,
        send_s=(SEND_S + SEND_S_PER_TENSOR * tensors) * factor,
        send_delay_s=SEND_DELAY_S * factor,
        take_s=take_s,
        take_delay_s=(TAKE_DELAY_S + TAKE_DELAY_S_PER_TENSOR * tensors) * factor,
        busy_delay_s=BUSY_DELAY_S * factor,
        pin_s=batch.pin_s + touch_s if pinned else batch.pin_s,
        step_s=batch.step_s + _held_s(touch_s, take_s, pinned=pinned),
    )


def in_line(
    batch: BatchDemand, nbytes: float, tensors: float, memory_s: float, *, pinned: bool
) -> BatchDemand:
    """A worker's batch, if the training process made it instead.

    `memory_s` is kernel time for fresh memory, which the training process saves by reusing its own.
    """
    made_s = batch.cpu_s + batch.collate_s
    saved_s = max(memory_s, SHARE_S + SHARE_S_PER_TENSOR * tensors) + FRESH_S_PER_BYTE * nbytes
    left = 1 - min(saved_s, 0.9 * made_s) / made_s if made_s else 1.0
    touch_s = TOUCH_S_PER_BYTE * nbytes
    held_s = _held_s(touch_s, batch.take_s, pinned=pinned)
    return batch._replace(
        cpu_s=batch.cpu_s * left,
        collate_s=batch.collate_s * left,
        send_s=0.0,
        send_delay_s=0.0,
        take_s=IN_LINE_S,
        take_delay_s=0.0,
        busy_delay_s=0.0,
        pin_s=max(batch.pin_s - touch_s, 0.1 * batch.pin_s) if pinned else 0.0,
        step_s=batch.step_s - min(held_s, _MOST_OF_A_STEP * batch.step_s),
    )


def _held_s(touch_s: float, take_s: float, *, pinned: bool) -> float:
    """How much longer a step takes on a batch made by a worker."""
    return (0.0 if pinned else touch_s + RELEASE_SHARE * take_s) + DISTURBED_S


def resized(batch: BatchDemand, ratio: float, nbytes: float, step_power: float) -> BatchDemand:
    """A batch of `ratio` times as many samples; its step takes ``ratio ** step_power`` times as long."""
    more_bytes = nbytes * (ratio - 1)
    return batch._replace(
        cpu_s=batch.cpu_s * ratio,
        collate_s=batch.collate_s * ratio,
        blocked_s=batch.blocked_s * ratio,
        late_s=batch.late_s * ratio,
        disk_s=batch.disk_s * ratio,
        index_s=batch.index_s * ratio,
        pin_s=max(batch.pin_s + TOUCH_S_PER_BYTE * more_bytes, 0.0) if batch.pin_s else 0.0,
        step_s=batch.step_s * ratio**step_power,
        step_delay_s=batch.step_delay_s * ratio**step_power,
        ahead_s=batch.ahead_s * ratio**step_power,
    )
