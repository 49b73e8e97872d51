"""A file that every worker opens for itself, on first use."""

import tempfile

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

ROW = 64


class Records(Dataset):
    def __init__(self, path):
        self.path = path
        self.file = None

    def __len__(self):
        return 320

    def __getitem__(self, index):
        if self.file is None:
            self.file = open(self.path, "rb")
        self.file.seek(index * ROW)
        return torch.from_numpy(np.frombuffer(self.file.read(ROW), np.float32).copy())


def main():
    with tempfile.NamedTemporaryFile() as file:
        file.write(np.random.rand(320, ROW // 4).astype(np.float32).tobytes())
        file.flush()
        loader = DataLoader(Records(file.name), batch_size=16, shuffle=True, num_workers=2)
        weight = torch.zeros(ROW // 4, requires_grad=True)
        for batch in loader:
            (batch @ weight).sum().backward()


if __name__ == "__main__":
    main()
