"""One of four trainings. Does it break, why, and what has to change?"""

import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

from unstarve.labs.breakage import SAMPLES, limit_memory, limit_shared_memory


class Samples(Dataset):
    """Samples of 1 MB each."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return torch.tensor(float(index)).expand(262_144)


def make_loader():
    workers = {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 8}
    return DataLoader(Samples(), batch_size=8, shuffle=True, **workers)


def train(loader, epochs=4):
    model = torch.nn.Linear(262_144, 1)
    for epoch in range(epochs):
        began = time.perf_counter()
        for batch in loader:
            loss = model(batch).square().mean()
            loss.backward()
            time.sleep(0.05)  # stands for a larger model
        print(f"epoch {epoch + 1} of {epochs}: {time.perf_counter() - began:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    limit_memory()
    limit_shared_memory()
    train(make_loader())
