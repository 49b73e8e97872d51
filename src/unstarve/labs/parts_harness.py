"""Train on one workload of the lab on faster parts, with a step of ours, and say what was delivered.

The file defines ``make_loader(folder, slot)``.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter, thread_time  # these, whatever the file makes of the module
from typing import Any

import torch

import unstarve
from unstarve.labs.harness import digest, imported, sums
from unstarve.labs.parts_data import dataset_in, kind_in, set_epoch
from unstarve.labs.step import Step


def run(file: Path, slot: str, step_rounds: int | None = None) -> dict[str, Any]:
    """Seconds, steps, samples, and a digest of the samples of each epoch, whatever their order."""
    folder = file.parent
    kind = kind_in(folder, slot)
    _prepare(folder, slot)
    step = Step(kind.step_ms, step_rounds)
    train = step.__call__  # this one, whatever the file makes of the class
    epochs: list[list[torch.Tensor]] = []
    worked = 0.0
    set_epoch(0)
    clock, cpu_clock = perf_counter, thread_time  # and whatever it makes of this module
    began = clock()
    loader = imported(file).make_loader(folder, slot)  # in time: a cache has to be filled, too
    for epoch in range(kind.epochs):
        set_epoch(epoch)
        epochs.append([])
        for batch in loader:
            tensor = _tensor(batch)
            at = cpu_clock()
            train(tensor)
            worked += cpu_clock() - at
            epochs[-1].append(sums(tensor))
    return {
        "seconds": clock() - began,
        "step_cpu_s": worked,
        "step_rounds": step.rounds,
        "steps": sum(map(len, epochs)),
        "samples": sum(len(batch) for epoch in epochs for batch in epoch),
        "digests": [digest(epoch) for epoch in epochs],
    }


def _prepare(folder: Path, slot: str) -> None:
    """What no version should pay for: files that have to be written, modules that have to be imported."""
    dataset_in(folder, slot)
    for name in ("DataLoader", "CachedDataset", "AsyncPrefetchDataset", "TensorFileDataset", "PackedDataset"):
        getattr(unstarve, name)


def _tensor(batch: Any) -> torch.Tensor:
    """A batch of a TensorDataset is a list."""
    tensor: torch.Tensor = batch[0] if isinstance(batch, list | tuple) else batch
    return tensor
