"""Why replay may gain more than the waits alone would: 1 ÷ (1 − share of the waits)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from unstarve.analyze.headroom import Block, compared
from unstarve.analyze.timeline import Timeline
from unstarve.model import GpuSummary, Headroom
from unstarve.words import duration, percent

_WORTH_TELLING = 1.05
"""Smallest ratio of the measured headroom to what the waits explain."""
_MOSTLY = 0.5
"""A reason is named if it explains this much of the difference."""
_NOT_RECORDED = "what else slows the real steps was not recorded"


def beyond_waits(
    timelines: Sequence[Timeline], headroom: Headroom, lost_share: float | None, gpu: GpuSummary | None
) -> str | None:
    """One sentence on a headroom that the share of time lost to data does not explain.

    None when it does, within the noise of the measurement; so does every estimate, which is made from it.
    """
    if headroom.method != "replay" or lost_share is None or lost_share >= 1:
        return None
    explained = 1 / (1 - lost_share)
    if headroom.low <= explained or headroom.speedup < _WORTH_TELLING * explained:
        return None
    blocks = max((compared(t) for t in timelines), key=_gain, default=[])
    stalls = gpu is not None and gpu.stall_share is not None
    reason = _reason(blocks, math.log(headroom.speedup / explained), lost_share, gpu)
    return f"replay gains more than the {'stalls' if stalls else 'waits'} alone would: {reason}"


def _reason(
    blocks: Sequence[tuple[Block, Block, Block]], excess: float, lost_share: float, gpu: GpuSummary | None
) -> str:
    """The largest measured difference between real steps and replayed ones; `excess` is a logarithm."""
    real = [block for before, _, after in blocks for block in (before, after)]
    replayed = [replay for _, replay, _ in blocks]
    real_s, replay_s = (_mean([b.seconds - b.wait_s for b in some]) for some in (real, replayed))
    if real_s > 0 and replay_s > 0 and math.log(real_s / replay_s) >= _MOSTLY * excess:
        told = f"without loading, the step itself takes {duration(replay_s)} instead of {duration(real_s)}"
        queued_s = _mean([b.queued_s for b in real]) - _mean([b.queued_s for b in replayed])
        if queued_s < _MOSTLY * (real_s - replay_s):
            return told
        return f"{told}, which includes {duration(queued_s)} without a free core"
    if gpu is not None and gpu.stall_share is not None:
        # The GPU computes for what is left of the time: no replay is faster than that.
        busy = 1 - lost_share - (gpu.host_late_share or 0.0)
        if busy > 0 and math.log((1 - lost_share) / busy) >= _MOSTLY * excess:
            return (
                f"the GPU idled another {percent(gpu.host_late_share or 0.0)} of the time because the host, "
                "held up by the waits, gave it work too late"
            )
        return _NOT_RECORDED
    waited = _mean([b.wait_s for b in real]) / _mean([b.seconds for b in real])
    if lost_share < waited < 1 and math.log((1 - lost_share) / (1 - waited)) >= _MOSTLY * excess:
        return (
            f"the real steps it was compared with waited {percent(waited)} of the time, all real steps "
            f"{percent(lost_share)}"
        )
    return _NOT_RECORDED


def _gain(blocks: Sequence[tuple[Block, Block, Block]]) -> float:
    return _mean([(before.seconds + after.seconds) / replay.seconds for before, replay, after in blocks])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
