"""A loop that Accelerate prepares, as in its own examples; each sample takes 40 ms to arrive."""

import argparse
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset


class RemoteDigits(Dataset):
    def __init__(self, length, rotten=None):
        self.length, self.rotten = length, rotten

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index == self.rotten:
            raise LookupError(f"sample {index} is rotten")
        time.sleep(0.04)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(64, generator=generator), index % 10


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--callback", action="store_true")
    parser.add_argument("--fail", action="store_true")
    args = parser.parse_args()
    trackers = []
    if args.callback:
        from unstarve.integrations.accelerate import UnstarveTracker

        trackers = [UnstarveTracker(output="callback.unstarve")]
    set_seed(1)
    accelerator = Accelerator(cpu=True, log_with=trackers)
    accelerator.init_trackers("digits")
    train_set = RemoteDigits(120, rotten=7 if args.fail else None)
    train_dataloader = DataLoader(train_set, batch_size=4, shuffle=True)
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
        accelerator.log({"loss": loss.item()})
    accelerator.end_training()
    accelerator.print("loss", loss.item())


if __name__ == "__main__":
    main()
