"""Two logs → what free data would change."""

from __future__ import annotations

from statistics import median

from unstarve.intervals import WORTH_IT
from unstarve.model import LoadComparison, LoadLog
from unstarve.present.units import duration, share

_ENOUGH_STEPS = 20


def compare_logs(real: LoadLog, ideal: LoadLog) -> LoadComparison:
    """Compare whole steps: a wait that training would have spent otherwise is not counted as lost."""
    unit = "samples" if _has_sizes(real) and _has_sizes(ideal) else "batches"
    real_per_s, ideal_per_s = _per_s(real, unit), _per_s(ideal, unit)
    speedup = ideal_per_s / real_per_s if real_per_s and ideal_per_s else None
    return LoadComparison(
        headline=_headline(real, ideal, speedup),
        speedup=speedup,
        lost_share=None if speedup is None else max(0.0, 1 - 1 / speedup),
        real_wait_share=_wait_share(real),
        ideal_wait_share=_wait_share(ideal),
        real_per_s=real_per_s,
        ideal_per_s=ideal_per_s,
        unit=unit,
    )


def _has_sizes(log: LoadLog) -> bool:
    return bool(log.sizes) and None not in log.sizes


def _per_s(log: LoadLog, unit: str) -> float | None:
    """Throughput of training: each step counts the batch it ends with, so the very first is out."""
    total_s = sum(log.step_s)
    if total_s <= 0:
        return None
    count = sum(size or 0 for size in log.sizes[1:]) if unit == "samples" else len(log.step_s)
    return count / total_s


def _wait_share(log: LoadLog) -> float | None:
    total_s = sum(log.step_s)
    return min(1.0, sum(log.load_s[1:]) / total_s) if total_s > 0 else None


def _headline(real: LoadLog, ideal: LoadLog, speedup: float | None) -> str:
    if speedup is None:
        times = duration(median(real.load_s)), duration(median(ideal.load_s))
        return f"A batch takes {times[0]} to load and {times[1]} to replay"
    steps = min(len(real.step_s), len(ideal.step_s))
    if steps < _ENOUGH_STEPS:
        return f"Too few steps to tell whether training waits for data: {steps}"
    saved = share(max(0, 1 - 1 / speedup))
    if speedup < WORTH_IT:
        return f"Training hardly waits for data: free data would save {saved} of its time"
    return f"Training waits {saved} of the time; {speedup:.1f}× faster if data were free"
