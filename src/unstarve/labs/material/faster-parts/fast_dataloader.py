"""Your version: choose a part for each workload. Samples and batch sizes must stay the same."""

import sys

from torch.utils.data import DataLoader
from workloads import HERE, dataset_in, kind_in, train


def make_loader(folder, slot):
    dataset = dataset_in(folder, slot)
    batch_size = kind_in(folder, slot).batch_size
    if slot == "a":
        return DataLoader(dataset, batch_size=batch_size, shuffle=True)
    if slot == "b":
        return DataLoader(dataset, batch_size=batch_size, shuffle=True)
    return DataLoader(dataset, batch_size=batch_size, shuffle=True)


if __name__ == "__main__":
    slot = sys.argv[1]
    train(make_loader(HERE, slot), slot)
