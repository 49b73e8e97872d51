"""Shared memory and file descriptors that run out, with a forecast."""

from __future__ import annotations

from collections.abc import Iterable

from unstarve.analyze.memory_growth import growth_in
from unstarve.analyze.timeline import training_processes
from unstarve.check.evidence.memory_scene import batches_per_s
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
        looks = [look for look in training.memory.looks if look.shm_bytes is not None]
        total = max((pulse.shm_total_bytes or 0 for pulse in training.pulses), default=0)
        if not looks or not total:
            return
        peak, last = max(look.shm_bytes or 0 for look in looks), looks[-1].shm_bytes or 0
        left_s = _left_s(growth_in(training, lambda look: look.shm_bytes), total, _LEAST_SHM_GROWN)
        if left_s is None and peak < _HIGH * total:
            return
        used = last if left_s is not None else peak
        message = f"/dev/shm is {percent(used / total)} full ({size(used)} of {size(total)})"
        if left_s is None:
            message = message.replace(" is ", " was ")
            fix = (
                "Start the container with a larger /dev/shm (docker run --shm-size=…), or set "
                "prefetch_factor=1: fewer batches are in flight then."
            )
        else:
            message += f" and will be full {_until(left_s, batches_per_s(training))}"
            fix = (
                "Let go of batches after their step, or keep copies: tensor.clone(). A larger /dev/shm "
                "(docker run --shm-size=…) only fills later."
            )
        yield finding("shm-full", f"{message}.", fix, harm=max(used / total, 0.5))


def descriptor_watermark(run: Run, _diagnosis: Diagnosis) -> Iterable[Finding]:
    """Whether a process has almost all the descriptors open that it may, or will have."""
    for process in [*training_processes(run)[:1], *(p for p in run.processes if p.worker)]:
        looks = [look for look in process.memory.looks if look.descriptors is not None]
        limit = looks[-1].descriptor_limit if looks else None
        if not limit:
            continue
        peak = max(look.descriptors or 0 for look in looks)
        left_s = _left_s(growth_in(process, lambda look: look.descriptors), limit, _LEAST_OPENED)
        if left_s is None and peak < _HIGH * limit:
            continue
        who = "A worker" if process.worker else "The training process"
        message = f"{who} has {amount(peak)} of {amount(limit)} file descriptors open"
        if left_s is not None:
            message += f" and will run out {_until(left_s, batches_per_s(process))}"
        fix = "Close what is opened for each sample."
        if not process.worker:
            fix = (
                "Do not keep batches, or let their tensors hold no descriptor:\n"
                'torch.multiprocessing.set_sharing_strategy("file_system")'
            )
        yield finding("descriptors", f"{message}.", fix, harm=max(peak / limit, 0.5))
        return


def _left_s(trend: Trend | None, total: int, least: float) -> float | None:
    """Seconds until `total` is reached; None if that is not to be expected soon."""
    if trend is None or not trend.lasting or trend.grown < least:
        return None
    left_s = (total - trend.last) / trend.per_s
    return left_s if left_s <= _SOON_S else None


def _until(left_s: float, per_s: float | None) -> str:
    return f"in about {about(left_s * per_s)} batches" if per_s else f"in about {about(left_s)} seconds"
