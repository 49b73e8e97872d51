"""Train with the learner's version of the memory lab and say how much memory it keeps.

    python -m unstarve.labs.memory_harness FILE EPOCHS     how much the class Training of FILE keeps
    python -m unstarve.labs.memory_harness FOLDER batch N  how much a step with a batch of N samples needs

Prints one line of JSON: the memory after each epoch and what tells whether training still does its work, or
the peak of the step.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import psutil
import torch

import unstarve
from unstarve.labs import leaks
from unstarve.labs.harness import imported, sums
from unstarve.labs.lab import RESULT_MARK


def main() -> None:
    """Run what the command line says."""
    target, what = Path(sys.argv[1]).absolute(), sys.argv[2]
    torch.set_num_threads(1)
    result = _step(target, int(sys.argv[3])) if what == "batch" else _trained(target, int(what))
    print(RESULT_MARK + json.dumps(result), flush=True)


def _trained(file: Path, epochs: int) -> dict[str, Any]:
    os.chdir(file.parent)
    sys.path.insert(0, str(file.parent))
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


if __name__ == "__main__":
    main()
