"""Train with a loader of the learner's, with a step of ours, and say how long it took and what was delivered.

    python -m unstarve.labs.harness FILE EPOCHS

FILE defines ``make_loader(folder)``. The step is not the learner's: nobody gets faster by training less.
Prints one line of JSON: seconds, steps, wait_share, and a digest of all samples, whatever their order.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from unstarve.labs.lab import RESULT_MARK
from unstarve.labs.workload import Batch, Step, Workload, joined


def main() -> None:
    """Run what the command line says."""
    file, epochs = Path(sys.argv[1]).absolute(), int(sys.argv[2])
    torch.set_num_threads(1)
    os.chdir(file.parent)
    sys.path.insert(0, str(file.parent))
    step = Step(Workload(file.parent).step_ms())
    digests: list[torch.Tensor] = []
    waited = 0.0
    steps = 0
    began = time.perf_counter()
    loader = imported(file).make_loader(file.parent)  # in time: a cache has to be filled, too
    for _ in range(epochs):
        batches = iter(loader)
        while True:
            asked = time.perf_counter()
            try:
                batch = next(batches)
            except StopIteration:
                waited += time.perf_counter() - asked
                break
            waited += time.perf_counter() - asked
            step(batch)
            digests.append(sums(batch))
            steps += 1
    seconds = time.perf_counter() - began
    result = {
        "seconds": seconds,
        "steps": steps,
        "wait_share": waited / seconds,
        "samples": sum(map(len, digests)),
        "digest": digest(digests),
    }
    print(RESULT_MARK + json.dumps(result), flush=True)


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


if __name__ == "__main__":
    main()
