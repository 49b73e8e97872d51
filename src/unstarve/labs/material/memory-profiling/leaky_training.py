"""The training as it came, with a leak or without one. Leave it as it is, it is your baseline."""

from pathlib import Path

import torch
from torch.utils.data import DataLoader

import unstarve
from unstarve.labs.leaks import CachingDataset, LossHistory, RecentBatches, device, make_model


class Training:
    def __init__(self, folder):
        self.model = make_model(folder).to(device())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self.loader = DataLoader(CachingDataset(folder), batch_size=16, shuffle=True)  # decodes a sample once
        self.losses = LossHistory(folder)  # of every step, for a curve
        self.recent = RecentBatches(folder)  # the last 2, to look at when a loss is odd

    @unstarve.memory_profile
    def epoch(self):
        for loaded in self.loader:
            batch = loaded.to(device())
            self.optimizer.zero_grad()
            self.loss(batch).backward()
            self.optimizer.step()
            self.losses.add(self.loss(batch))
            self.recent.add(batch)

    def loss(self, batch):
        return (self.model(batch) - 1).square().mean()


if __name__ == "__main__":
    torch.set_num_threads(1)
    training = Training(Path(__file__).parent)
    print(f"a batch has {16 * training.loader.dataset[0].nbytes / 1e6:.2f} MB")
    for _ in range(6):
        training.epoch()
