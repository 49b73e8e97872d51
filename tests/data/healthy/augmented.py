"""Random augmentation: the dataset's own generator is made in each worker, from the worker's seed."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __init__(self):
        self.rng = None

    def __len__(self):
        return 320

    def __getitem__(self, index):
        if self.rng is None:
            self.rng = np.random.default_rng(torch.initial_seed())
        return torch.from_numpy(self.rng.normal(index, 1.0, 8).astype(np.float32))


def main():
    loader = DataLoader(Noisy(), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
    weight = torch.zeros(8, requires_grad=True)
    for _ in range(2):
        for batch in loader:
            (batch @ weight).sum().backward()


if __name__ == "__main__":
    main()
