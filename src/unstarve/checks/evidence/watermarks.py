"""Shared memory and file descriptors that run out, with a forecast."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unstarve.analyze.memory_growth import growth_in
from unstarve.analyze.timeline import training_processes
from unstarve.checks.evidence.memory_scene import batches_per_s
from unstarve.model import Diagnosis, Run, Trend
from unstarve.model.checks import finding
from unstarve.model.finding import Finding
from unstarve.words import about, amount, percent, size

_HIGH = 0.9
"""Of what there is. In use at one moment, it is a matter of luck whether the next batch still fits."""
_SOON_S = 86_400.0
"""A forecast of more than a day is left out: growth rarely goes on like that for so long."""
_LEAST_SHM_GROWN = 4_000_000
"""Bytes. The batches in flight vary by their number."""
_LEAST_OPENED = 32


def shared_memory_watermark(run: Run, _diagnosis: Diagnosis) -> Iterable[Finding]:
    """Whether /dev/shm was all but full, or will be."""
    for training in training_processes(run)[:1]:  # all ranks of a machine see the same
        used = [look.shm_bytes for look in training.memory.looks if look.shm_bytes is not None]
        total = max((pulse.shm_total_bytes or 0 for pulse in training.pulses), default=0)
        if used and total:
            trend = growth_in(training, lambda look: look.shm_bytes)
            yield from shm_findings(trend, used, total, batches_per_s(training))


def descriptor_watermark(run: Run, _diagnosis: Diagnosis) -> Iterable[Finding]:
    """Whether a process has almost all the descriptors open that it may, or will have."""
    for process in [*training_processes(run)[:1], *(p for p in run.processes if p.worker)]:
        opened = [look.descriptors for look in process.memory.looks if look.descriptors is not None]
        limit = process.memory.looks[-1].descriptor_limit if opened else None
        if limit:
            trend = growth_in(process, lambda look: look.descriptors)
            per_s = None if process.worker else batches_per_s(process)
            found = descriptor_findings(trend, opened, limit, per_s, worker=process.worker)
            if found:
                return found
    return []


def shm_findings(trend: Trend | None, used: Sequence[int], total: int, per_s: float | None) -> list[Finding]:
    """What is to say about the use of /dev/shm over time, with `per_s` batches a second."""
    left_s = _left_s(trend, total, _LEAST_SHM_GROWN)
    if left_s is None and max(used) < _HIGH * total:
        return []
    now = max(used) if left_s is None else used[-1]
    message = f"{percent(now / total)} full ({size(now)} of {size(total)})"
    if left_s is None:
        message = f"/dev/shm was {message}."
        fix = (
            "Start the container with a larger /dev/shm (docker run --shm-size=…), or set "
            "prefetch_factor=1: fewer batches are in flight then."
        )
    else:
        message = f"/dev/shm is {message} and will be full {_until(left_s, per_s)}."
        fix = (
            "Let go of batches after their step, or keep copies: tensor.clone(). A larger /dev/shm "
            "(docker run --shm-size=…) only fills later."
        )
    return [finding("shm-full", message, fix, harm=max(now / total, 0.5))]


def descriptor_findings(
    trend: Trend | None, opened: Sequence[int], limit: int, per_s: float | None, *, worker: bool = False
) -> list[Finding]:
    """What is to say about the open descriptors of a process over time."""
    left_s = _left_s(trend, limit, _LEAST_OPENED)
    peak = max(opened)
    if left_s is None and peak < _HIGH * limit:
        return []
    who = "A worker" if worker else "The training process"
    message = f"{who} has {amount(peak)} of {amount(limit)} file descriptors open"
    if left_s is not None:
        message += f" and will run out {_until(left_s, per_s)}"
    fix = "Close the files that each sample opens."
    if not worker:
        fix = (
            "# do not keep batches, or let their tensors hold no descriptor\n"
            'torch.multiprocessing.set_sharing_strategy("file_system")'
        )
    return [finding("descriptors", f"{message}.", fix, harm=max(peak / limit, 0.5))]


def _left_s(trend: Trend | None, total: int, least: float) -> float | None:
    """Seconds until `total` is reached; None if that is not to be expected soon."""
    if trend is None or not trend.lasting or trend.grown < least:
        return None
    left_s = (total - trend.last) / trend.per_s
    return left_s if left_s <= _SOON_S else None


def _until(left_s: float, per_s: float | None) -> str:
    return f"in about {about(left_s * per_s)} batches" if per_s else f"in about {about(left_s)} seconds"
