"""The slow version: torch's DataLoader with its defaults. Leave it as it is, it is your baseline."""

import sys

from torch.utils.data import DataLoader
from workloads import HERE, dataset_in, kind_in, train


def make_loader(folder, slot):
    dataset = dataset_in(folder, slot)
    return DataLoader(dataset, batch_size=kind_in(folder, slot).batch_size, shuffle=True)


if __name__ == "__main__":
    slot = sys.argv[1]
    train(make_loader(HERE, slot), slot)
