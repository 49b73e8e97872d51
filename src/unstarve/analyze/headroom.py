"""How much faster training would be if loading were free: measured by replay, or estimated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from unstarve.analyze.stats import block_means, mean_estimate, ratio_estimate
from unstarve.analyze.timeline import Timeline
from unstarve.model import Batch, Headroom, Phase

_FEWEST_STEPS = 3
"""Blocks with fewer measured steps are ignored."""
_LARGEST_SHARE = 0.999
"""Keeps the speed-up of a training that only waits finite."""


def measured_headroom(timeline: Timeline) -> Headroom | None:
    """From a run of `unstarve ideal`: each replay block compared to the real blocks on both sides of it.

    Pairing neighbours cancels slow drift (clocks, caches, other load). None when fewer than two replay blocks
    have such neighbours, because there is no interval then.
    """
    ratios = [
        (before.seconds + after.seconds) / 2 / replay.seconds for before, replay, after in compared(timeline)
    ]
    if len(ratios) < 2:
        return None
    estimate = ratio_estimate(ratios)
    return Headroom(estimate.value, estimate.low, estimate.high, "replay")


@dataclass(frozen=True, slots=True)
class Block:
    """The mean step of one block of `unstarve ideal`."""

    seconds: float
    """From one request to the next: the wait, and the step itself."""
    wait_s: float
    queued_s: float
    """Part of the step itself in which the training thread was runnable but had no core."""


def compared(timeline: Timeline) -> list[tuple[Block, Block, Block]]:
    """Every measured replay block between its two real neighbours."""
    durations = _step_seconds(timeline)
    by_block: defaultdict[int, list[tuple[float, Batch]]] = defaultdict(list)
    for batch in timeline.batches:
        seconds = durations.get((batch.epoch, batch.position))
        if seconds is not None and batch.block and not batch.settling and batch.position > 0:
            by_block[batch.block].append((seconds, batch))
    blocks = {number: _block(steps) for number, steps in by_block.items() if len(steps) >= _FEWEST_STEPS}
    blocks = {number: block for number, block in blocks.items() if block.seconds > 0}
    replayed = {batch.block for batch in timeline.batches if batch.phase is Phase.REPLAY}
    return [
        (blocks[number - 1], blocks[number], blocks[number + 1])
        for number in sorted(replayed)
        if all(near in blocks for near in (number - 1, number, number + 1))
    ]


def _block(steps: Sequence[tuple[float, Batch]]) -> Block:
    count = len(steps)
    return Block(
        sum(seconds for seconds, _ in steps) / count,
        sum(batch.wait_ns for _, batch in steps) / count / 1e9,
        sum(batch.step_queued_ns or 0 for _, batch in steps) / count / 1e9,
    )


def _step_seconds(timeline: Timeline) -> dict[tuple[int, int], float]:
    """Duration of each batch's step, from one request to the next inside the same epoch.

    `unstarve ideal` changes phase at a request, after waiting for the device.
    """
    last_ask = {e.epoch: e.last_ask_ns for e in timeline.process.epochs if e.loader == timeline.main}
    seconds: dict[tuple[int, int], float] = {}
    following: list[Batch | None] = [*timeline.batches[1:], None]
    for batch, after in zip(timeline.batches, following, strict=True):
        same_epoch = after is not None and after.epoch == batch.epoch
        end_ns = after.ask_ns if after is not None and same_epoch else last_ask.get(batch.epoch)
        if end_ns is not None:
            seconds[batch.epoch, batch.position] = (end_ns - batch.ask_ns) / 1e9
    return seconds


def estimated_headroom(timelines: list[Timeline], share: float | None) -> Headroom | None:
    """From the recorded stalls alone: the measured time divided by what is left of it without them.

    `share` is the share of the measured time lost to data: the waits, or an accelerator's stalls. An estimate
    does not include that workers slow the step itself down, nor what is hidden behind the waits.
    """
    steps = [step for timeline in timelines for step in timeline.steps]
    if len(steps) < 2 * _FEWEST_STEPS or share is None:
        return None
    # Error of a ratio of sums, from the spread of its residuals over stretches of steps.
    waits = block_means([step.wait_s for step in steps])
    totals = block_means([step.seconds for step in steps])
    if sum(totals) <= 0:
        return None  # the clock of a damaged run
    step_share = sum(waits) / sum(totals)
    error = mean_estimate([w - step_share * t for w, t in zip(waits, totals, strict=True)])
    half = (error.high - error.low) / 2 / (sum(totals) / len(totals))
    speedup, low, high = (
        1 / (1 - min(max(s, 0.0), _LARGEST_SHARE)) for s in (share, share - half, share + half)
    )
    return Headroom(speedup, low, high, "estimate")
