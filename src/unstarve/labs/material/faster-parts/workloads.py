"""The three workloads that were drawn for you, and the training loop that both versions share."""

import sys
from pathlib import Path

import torch

from unstarve.labs.parts_data import dataset_in, kind_in, set_epoch
from unstarve.labs.step import Step

HERE = Path(__file__).parent


def train(loader, slot):
    torch.set_num_threads(1)
    kind = kind_in(HERE, slot)
    print(f"{slot}: {kind.name}, {kind.samples} samples, epochs: {kind.epochs}", file=sys.stderr)
    step = Step(kind.step_ms)
    for epoch in range(kind.epochs):
        set_epoch(epoch)
        for batch in loader:
            step(batch[0] if isinstance(batch, list | tuple) else batch)


__all__ = ["HERE", "dataset_in", "kind_in", "train"]
