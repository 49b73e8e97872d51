"""Device memory that grows with every batch."""

from __future__ import annotations

from collections.abc import Iterable

from unstarve.analyze.memory_growth import trend_in
from unstarve.analyze.timeline import training_processes
from unstarve.checks.evidence.memory_scene import LONGEST_TRAINING_S
from unstarve.model import Diagnosis, Run
from unstarve.model.checks import finding
from unstarve.model.finding import Finding
from unstarve.words import about, size, size_rate

_LEAST_GROWN = 64_000_000
"""Bytes. torch takes memory from the device in blocks of megabytes, and gives it back rarely."""


def device_memory_growth(run: Run, _diagnosis: Diagnosis) -> Iterable[Finding]:
    """Whether a device fills up, by the driver's own count; not where other processes use it, too."""
    for training in training_processes(run):
        for device in sorted({reading.device for reading in training.readings}):
            own = [one for one in training.readings if one.device == device]
            total = max((one.memory_total_bytes or 0 for one in own), default=0)
            used = [(o.at_ns, float(o.memory_used_bytes)) for o in own if o.memory_used_bytes is not None]
            trend = trend_in(training, sorted(used))
            if any(one.shared for one in own) or not total:
                continue
            if trend is None or not trend.lasting or trend.grown < _LEAST_GROWN:
                continue
            left_s = (total - trend.last) / trend.per_s
            if left_s > LONGEST_TRAINING_S:
                continue
            message = f"The memory of GPU {device} grows by {size_rate(trend.per_s, trend.low, trend.high)}"
            if trend.per_batch:
                batches = about((total - trend.last) / trend.per_batch)
                message += f", {size(trend.per_batch)} a batch: it will be full in about {batches} batches"
            fix = "Keep numbers instead of tensors that hold the graph of their step: total += loss.item()."
            yield finding("memory-leak", f"{message}.", fix, harm=trend.last / total)
            return
