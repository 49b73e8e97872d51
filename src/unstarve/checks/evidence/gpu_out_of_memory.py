"""The GPU ran out of memory: for which batch, and which batch would fit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import median
from typing import Any

from unstarve.model import Batch, Diagnosis, Process, Run
from unstarve.model.checks import finding
from unstarve.model.finding import Finding
from unstarve.words import mean_count, size

_RAN_OUT = re.compile(r"OutOfMemoryError|CUDA out of memory")
_SAFETY = 0.9
"""Share of the memory that a batch may fill: allocators need some for themselves."""
_MEASURED_STEPS = 5
"""The peak is read after so many steps."""


def out_of_memory(run: Run, _diagnosis: Diagnosis) -> Iterator[Finding]:
    """The command ended because a step did not fit into the GPU's memory."""
    if not run.exit_code or run.failure is None or not _RAN_OUT.search(run.failure):
        return
    for process in run.processes:
        own = [one for one in process.batches if not one.nested]
        if process.worker or not own:
            continue
        last = max(own, key=lambda one: one.got_ns)
        yield _finding(process, own, last)
        return


def _finding(process: Process, batches: list[Batch], last: Batch) -> Finding:
    loader = next((one for one in process.loaders if one.id == last.loader), None)
    name = "the loader" if loader is None else loader.name
    samples = "" if last.size is None else f"{last.size} samples"
    extent = ", ".join(filter(None, [samples, None if last.nbytes is None else size(last.nbytes)]))
    message = f"The step on batch {last.position} of epoch {last.epoch} of {name}"
    message += f" ({extent})" if extent else ""
    message += " did not fit into the GPU's memory."
    memory = process.system.get("device_memory")
    before = [one for one in batches if one is not last]
    fit = [one.size for one in before if one.size is not None]
    if memory is None or last.size is None or not fit:
        return finding("cuda-out-of-memory", message, f"Lower the batch_size of {name}.")
    usual = median([one.size for one in batches[:_MEASURED_STEPS] if one.size is not None])
    peak, total = size(memory["peak_bytes"]), size(memory["total_bytes"])
    message += (
        f" After {_MEASURED_STEPS} steps of {mean_count(usual)} samples, the peak was {peak} of {total}."
    )
    if last.size <= max(fit):
        more = f" A batch of {max(fit)} samples had fit before, so memory has grown since."
        fix = "Look for tensors that are kept from step to step, such as losses without .item() or .detach()."
        return finding("cuda-out-of-memory", message + more, fix)
    largest = largest_batch(memory, usual)
    if largest is None or largest < 1:
        return finding("cuda-out-of-memory", message, f"Lower the batch_size of {name} below {last.size}.")
    most = min(largest, last.size - 1)
    fix = f"By the measured slope at most {most} samples fit: batch_size={most}."
    return finding("cuda-out-of-memory", message, fix)


def largest_batch(memory: dict[str, Any], samples: float) -> int | None:
    """Samples that fit: what a step needs beyond what stays between steps grows with the batch."""
    stays, peak, total = (memory[f"{name}_bytes"] for name in ("allocated", "peak", "total"))
    slope = (peak - stays) / samples if samples else 0.0
    return int((_SAFETY * total - stays) / slope) if slope > 0 else None
