"""The data and the training loop that all cases share. The data is made up, the work is real."""

import sys
from pathlib import Path

import torch
from torch.utils.data import Dataset

from unstarve.labs.step import Step
from unstarve.labs.workload import Workload


class CaseDataset(Dataset):
    def __init__(self, folder, case):
        self.workload = Workload(folder, case=case)

    def __len__(self):
        return self.workload.samples

    def __getitem__(self, index):
        return self.workload.sample(index)

    def collate(self, samples):
        return self.workload.collate(samples)


def train(loader, epochs=6):
    torch.set_num_threads(1)
    step = Step(loader.dataset.workload.step_ms() if hasattr(loader.dataset, "workload") else 8.0)
    for epoch in range(epochs):
        for batch in loader:
            step(batch)
        print(f"epoch {epoch + 1} of {epochs}", file=sys.stderr)


HERE = Path(__file__).parent
