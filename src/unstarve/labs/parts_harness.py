"""Train on one workload of the lab on faster parts, with a step of ours, and say what was delivered.

    python -m unstarve.labs.parts_harness FILE SLOT

FILE defines ``make_loader(folder, slot)``. Prints one line of JSON: seconds, steps, samples, and a digest of
the samples of each epoch, whatever their order.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

import unstarve
from unstarve.labs.harness import digest, imported, sums
from unstarve.labs.lab import RESULT_MARK
from unstarve.labs.parts_data import dataset_in, kind_in, set_epoch
from unstarve.labs.workload import Step


def main() -> None:
    """Run what the command line says."""
    torch.set_num_threads(1)
    file = Path(sys.argv[1]).absolute()
    os.chdir(file.parent)
    sys.path.insert(0, str(file.parent))
    print(RESULT_MARK + json.dumps(measured(file, sys.argv[2])), flush=True)


def measured(file: Path, slot: str) -> dict[str, Any]:
    """Train with the loader that a file makes for a slot."""
    folder = file.parent
    kind = kind_in(folder, slot)
    _prepare(folder, slot)
    step = Step(kind.step_ms)
    epochs: list[list[torch.Tensor]] = []
    set_epoch(0)
    began = time.perf_counter()
    loader = imported(file).make_loader(folder, slot)  # in time: a cache has to be filled, too
    for epoch in range(kind.epochs):
        set_epoch(epoch)
        epochs.append([])
        for batch in loader:
            tensor = _tensor(batch)
            step(tensor)
            epochs[-1].append(sums(tensor))
    return {
        "seconds": time.perf_counter() - began,
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


if __name__ == "__main__":
    main()
