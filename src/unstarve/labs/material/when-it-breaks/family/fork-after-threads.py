"""One of four trainings. Does it break, why, and what has to change?"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.utils.data import DataLoader, Dataset

from unstarve.labs.breakage import SAMPLES, limit_memory, sample


class Samples(Dataset):
    """Samples that a thread reads."""

    def __init__(self):
        self.reader = ThreadPoolExecutor(1)
        self.length = self.reader.submit(lambda: SAMPLES).result()

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.reader.submit(sample, index).result()


def make_loader():
    dataset = Samples()
    workers = {"num_workers": 2, "persistent_workers": True, "multiprocessing_context": "fork"}
    return DataLoader(dataset, batch_size=8, shuffle=True, **workers)


def train(loader, epochs=4):
    model = torch.nn.Linear(16_384, 1)
    for epoch in range(epochs):
        began = time.perf_counter()
        for batch in loader:
            loss = model(batch).square().mean()
            loss.backward()
            time.sleep(0.05)  # stands for a larger model
        print(f"epoch {epoch + 1} of {epochs}: {time.perf_counter() - began:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    limit_memory()
    train(make_loader())
