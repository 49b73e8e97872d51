"""One of four trainings. Does it break, why, and what has to change?"""

import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

from unstarve.labs.breakage import SAMPLES, limit_memory, sample


class Samples(Dataset):
    """Samples that are made on the spot."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return sample(index)


def make_loader():
    dataset = Samples()
    return DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)


def train(loader, epochs=4):
    model = torch.nn.Linear(16_384, 1)
    first_samples = []
    for epoch in range(epochs):
        began = time.perf_counter()
        for batch in loader:
            loss = model(batch).square().mean()
            loss.backward()
            first_samples.append(batch[0])
            time.sleep(0.05)  # stands for a larger model
        print(f"epoch {epoch + 1} of {epochs}: {time.perf_counter() - began:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    limit_memory()
    train(make_loader())
