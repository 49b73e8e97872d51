"""A loop that Accelerate prepares, as in its own examples; each sample takes 5 ms to arrive."""

import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset


class RemoteDigits(Dataset):
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        time.sleep(0.005)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(64, generator=generator), index % 10


def main():
    set_seed(1)
    accelerator = Accelerator(cpu=True)
    train_dataloader = DataLoader(RemoteDigits(480), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model, optimizer, train_dataloader = accelerator.prepare(model, optimizer, train_dataloader)
    model.train()
    for x, y in train_dataloader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    accelerator.print("loss", loss.item())


if __name__ == "__main__":
    main()
