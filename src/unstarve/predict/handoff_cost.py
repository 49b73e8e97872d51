"""What handing batches over costs, where it was not recorded because nobody had to.

A run without workers tells nothing about the hand-off, and a run with them little about what it would be
like without. These constants were measured with stock torch 2.11 and 2.13 (Linux, fork, file descriptors):
batches of 1 to 60 tensors and of 2 KB to 20 MB in all, two CPU cores or four. A tensor's part of taking a
batch was 0.2 ms in all in early measurements and 0.5 ms in later ones; what stands here was chosen between.
"""

from __future__ import annotations

from unstarve.predict.parts import Work

SEND_S, SEND_S_PER_TENSOR = 0.15e-3, 0.07e-3
"""Sending thread, on a core: pickling a handle for each tensor."""
SEND_DELAY_S = 0.3e-3
TAKE_S, TAKE_S_PER_TENSOR = 0.35e-3, 0.24e-3
"""Training thread, on a core: the message, each tensor's descriptor and mapping, the next index …"""
TAKE_DELAY_S, TAKE_DELAY_S_PER_TENSOR = 0.15e-3, 0.14e-3
"""… and waiting for the worker to hand each descriptor out …"""
BUSY_DELAY_S = 5e-3
"""… which has to get hold of its interpreter first: one turn of the lock when it computes in Python."""
SHARE_S, SHARE_S_PER_TENSOR = 0.12e-3, 0.06e-3
"""Worker, on a core: making shared memory …"""
SHARE_S_PER_BYTE = 0.7e-9
"""… whose fresh pages the kernel has to map for a large batch."""
TOUCH_S_PER_BYTE = 0.25e-9
"""Whoever reads the batch first, the step or the pin thread: mapping the same pages again, and unmapping."""
FRESH_S_PER_BYTE = 0.25e-9
"""Worker, beside the kernel's time: memory that nobody has touched is in no cache."""
LET_GO = 0.06
"""Of what taking a batch costs: closing its descriptors again, when the step lets go of it."""
IN_LINE_S = 0.08e-3
"""Training thread: what a batch costs beside its samples and collating, without workers."""
DISTURBED_S = 0.25e-3
"""Of a step: what workers that write, send and wake beside it take of the caches and the cores."""
USUAL_TENSORS = 2
"""Inputs and targets: where nobody counted."""

WORKER_START_S = 9e-3
"""Training thread: forking one worker …"""
WORKER_BOOT_S = 12e-3
"""… and the worker, on a core, until its first batch."""
SPAWN_BOOT_S = 2.5
"""The same for a worker that is a Python of its own and imports torch first."""
END_S, END_S_PER_WORKER = 10e-3, 2.5e-3
"""Training thread: ending the workers of an epoch."""
_MOST_OF_A_STEP = 0.5
"""No more than this part of a step is taken for the hand-off's."""


def in_workers(work: Work, nbytes: float, tensors: float, *, pinned: bool, factor: float = 1.0) -> Work:
    """A batch that the training process made itself, if a worker made it; `factor` scales the hand-off."""
    touch_s = TOUCH_S_PER_BYTE * nbytes * factor
    share_s = SHARE_S + SHARE_S_PER_TENSOR * tensors + SHARE_S_PER_BYTE * nbytes
    take_s = (TAKE_S + TAKE_S_PER_TENSOR * tensors) * factor
    return work._replace(
        collate_s=work.collate_s + share_s * factor,
        send_s=(SEND_S + SEND_S_PER_TENSOR * tensors) * factor,
        send_delay_s=SEND_DELAY_S * factor,
        take_s=take_s,
        take_delay_s=(TAKE_DELAY_S + TAKE_DELAY_S_PER_TENSOR * tensors) * factor,
        busy_delay_s=BUSY_DELAY_S * factor,
        pin_s=work.pin_s + touch_s if pinned else work.pin_s,
        step_s=work.step_s + _held_s(touch_s, take_s, pinned=pinned),
    )


def in_line(work: Work, nbytes: float, tensors: float, memory_s: float, *, pinned: bool) -> Work:
    """A batch that a worker made, if the training process made it itself.

    `memory_s` is what the kernel took to make memory, which the training process has and uses again.
    """
    made_s = work.cpu_s + work.collate_s
    saved_s = max(memory_s, SHARE_S + SHARE_S_PER_TENSOR * tensors) + FRESH_S_PER_BYTE * nbytes
    left = 1 - min(saved_s, 0.9 * made_s) / made_s if made_s else 1.0
    touch_s = TOUCH_S_PER_BYTE * nbytes
    held_s = _held_s(touch_s, work.take_s, pinned=pinned)
    return work._replace(
        cpu_s=work.cpu_s * left,
        collate_s=work.collate_s * left,
        send_s=0.0,
        send_delay_s=0.0,
        take_s=IN_LINE_S,
        take_delay_s=0.0,
        busy_delay_s=0.0,
        pin_s=max(work.pin_s - touch_s, 0.1 * work.pin_s) if pinned else 0.0,
        step_s=work.step_s - min(held_s, _MOST_OF_A_STEP * work.step_s),
    )


def _held_s(touch_s: float, take_s: float, *, pinned: bool) -> float:
    """By how much a step is longer on a batch that a worker has made."""
    return (0.0 if pinned else touch_s + LET_GO * take_s) + DISTURBED_S


def resized(work: Work, ratio: float, nbytes: float, step_power: float) -> Work:
    """A batch of `ratio` times as many samples; a step then takes ``ratio ** step_power`` times as long."""
    more_bytes = nbytes * (ratio - 1)
    return work._replace(
        cpu_s=work.cpu_s * ratio,
        collate_s=work.collate_s * ratio,
        blocked_s=work.blocked_s * ratio,
        late_s=work.late_s * ratio,
        disk_s=work.disk_s * ratio,
        index_s=work.index_s * ratio,
        pin_s=max(work.pin_s + TOUCH_S_PER_BYTE * more_bytes, 0.0) if work.pin_s else 0.0,
        step_s=work.step_s * ratio**step_power,
        step_delay_s=work.step_delay_s * ratio**step_power,
        ahead_s=work.ahead_s * ratio**step_power,
    )
