"""A training as people often write it. Every mistake here is common in real scripts."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from unstarve.demo.task import BATCH_SIZE, labels, train


class SlowImages(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Reads, converts and filters an image every time it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*.npy"))
        self.labels = labels()

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        image = np.load(self.files[index])  # from disk, in every epoch
        image = image.astype(np.float64) / 255.0  # eight times the bytes, for nothing
        smooth = np.zeros_like(image)
        for shift in (-2, -1, 0, 1, 2):  # always the same result: could be done once
            smooth += np.roll(image, shift, axis=0).copy() + np.roll(image, shift, axis=1).copy()
        smooth = (smooth - smooth.mean(axis=(0, 1))) / smooth.std(axis=(0, 1))
        tensor = torch.tensor(smooth.transpose(2, 0, 1).copy()).clone().float()  # three more copies
        return tensor, self.labels[index].clone()


if __name__ == "__main__":
    dataset = SlowImages(Path(sys.argv[1]))
    # num_workers=0 is the default: the training process does all the work above
    train_loader = DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True)
    train(train_loader, epochs=int(sys.argv[2]))
