"""Iterate the learner's loader on every rank, and say which samples reached which rank.

The file defines ``make_loader(folder)`` and ``begin_epoch(loader, epoch)``. Ranks are processes that know
each other by gloo, as in training, but they do not meet in every step, so that none waits for ever.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from unstarve.labs.harness import imported
from unstarve.labs.ranks import RANKS, SAMPLES
from unstarve.labs.workload import Workload

_PATIENCE = timedelta(seconds=60)


def run(file: Path, epochs: int) -> dict[str, Any]:
    """The indices of the samples that arrived, by rank and epoch; -1 for one that is not in the dataset."""
    with tempfile.TemporaryDirectory(prefix="unstarve-lab-") as folder:
        spawn(_rank, (file, epochs, folder), nprocs=RANKS)  # type: ignore[no-untyped-call]  # torch does not type it
        told = [json.loads((Path(folder) / str(rank)).read_text("utf-8")) for rank in range(RANKS)]
    return {"delivered": told}


def _rank(rank: int, file: Path, epochs: int, folder: str) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS))
    os.chdir(file.parent)
    sys.path.insert(0, str(file.parent))
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", meeting, timeout=_PATIENCE, world_size=RANKS, rank=rank)
    module = imported(file)
    workload = Workload(file.parent, SAMPLES)
    known = {_digest(workload.sample(index)): index for index in range(workload.samples)}
    loader: Any = module.make_loader(file.parent)
    delivered: list[list[int]] = []
    for epoch in range(epochs):
        module.begin_epoch(loader, epoch)
        delivered.append([known.get(_digest(sample), -1) for batch in loader for sample in batch])
    (Path(folder) / str(rank)).write_text(json.dumps(delivered), "utf-8")
    dist.barrier()
    dist.destroy_process_group()


def _digest(sample: torch.Tensor) -> bytes:
    return hashlib.blake2b(sample.contiguous().numpy().tobytes(), digest_size=16).digest()
