"""Train with the learner's version of the memory lab and say how much memory it keeps.

It measures how much the class ``Training`` of a file keeps in some epochs, or how much a step with a batch of
some samples needs.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import psutil
import torch

import unstarve
from unstarve.labs import leaks
from unstarve.labs.harness import imported, sums


def run(target: Path, count: int) -> dict[str, Any]:
    """For a file, the memory after each of `count` epochs, and what tells whether training does its work.

    For a folder, the peak of a step with `count` samples.
    """
    return _step(target, count) if target.is_dir() else _trained(target, count)


def _trained(file: Path, epochs: int) -> dict[str, Any]:
    torch.manual_seed(0)
    training = imported(file).Training(file.parent)
    held = []
    for _ in range(epochs):
        training.epoch()
        gc.collect()
        held.append(_held_bytes())
    return {
        "held_bytes": held,
        "losses": [float(loss) for loss in training.losses],
        "recent": [sums(batch).tolist() for batch in training.recent],
        "decoded": int(leaks.decoded),
    }


def _held_bytes() -> int:
    """Memory of this process, its workers and its tensors on the GPU."""
    on_gpu = torch.cuda.memory_allocated() if torch.cuda.is_available() else 0
    this = psutil.Process()
    return sum(int(process.memory_info().rss) for process in (this, *this.children())) + on_gpu


def _step(folder: Path, count: int) -> dict[str, Any]:
    """What a step needs beyond the model and the batch, as `unstarve.largest_batch` counts it."""
    model = leaks.make_model(folder)
    step = unstarve.memory_profile(lambda batch: model(batch).sum().backward())
    for samples in (1, count):  # the first step of all also fills caches
        batch = leaks.make_batch(folder, samples)
        step(batch)
        model.zero_grad(set_to_none=True)
    return {"peak_bytes": step.memory.host_added}  # type: ignore[attr-defined]  # set by the call
