"""Train with a loader of the learner's, with a step of ours, and say how long it took and what was delivered.

The file defines ``make_loader(folder)``. The step is not the learner's: nobody gets faster by training less.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path
from time import perf_counter, thread_time  # these, whatever the file makes of the module
from typing import Any

import torch

from unstarve.labs.step import Step
from unstarve.labs.workload import Batch, Workload, joined


def run(file: Path, epochs: int, step_rounds: int | None = None) -> dict[str, Any]:
    """Seconds, steps, share of the time waited, and a digest of all samples, whatever their order."""
    step = Step(Workload(file.parent).step_ms(), step_rounds)
    train = step.__call__  # this one, whatever the file makes of the class
    digests: list[torch.Tensor] = []
    waited = worked = 0.0
    steps = 0
    clock, cpu_clock = perf_counter, thread_time  # and whatever it makes of this module
    began = clock()
    loader = imported(file).make_loader(file.parent)  # in time: a cache has to be filled, too
    for _ in range(epochs):
        batches = iter(loader)
        while True:
            asked = clock()
            try:
                batch = next(batches)
            except StopIteration:
                waited += clock() - asked
                break
            waited += clock() - asked
            at = cpu_clock()
            train(batch)
            worked += cpu_clock() - at
            digests.append(sums(batch))
            steps += 1
    seconds = clock() - began
    return {
        "seconds": seconds,
        "steps": steps,
        "wait_share": waited / seconds,
        "step_cpu_s": worked,
        "step_rounds": step.rounds,
        "samples": sum(map(len, digests)),
        "digest": digest(digests),
    }


def imported(file: Path) -> Any:
    """The module in this file. Ends the process if there is none."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # workers that are spawned import it by this name
    spec.loader.exec_module(module)
    return module


def sums(batch: Batch) -> torch.Tensor:
    """A number for each sample of a batch: a weighted sum of its bytes, exact and cheap."""
    rows = joined(batch).detach().cpu().contiguous().reshape(len(batch), -1).view(torch.int32).to(torch.int64)
    weights = torch.arange(1, rows.shape[1] + 1, dtype=torch.int64) * 0x9E3779B1
    return (rows * weights).sum(dim=1)


def digest(found: list[torch.Tensor]) -> str:
    """A digest of what `sums` made of all batches, the same in every order."""
    ordered = torch.cat(found).sort().values if found else torch.zeros(0, dtype=torch.int64)
    return hashlib.sha256(ordered.numpy().tobytes()).hexdigest()
