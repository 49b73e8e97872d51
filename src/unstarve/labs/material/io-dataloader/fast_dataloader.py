"""Your version: change make_loader until training no longer waits. The samples must stay the same."""

from synthetic_dataset import HERE, SyntheticDataset, train
from torch.utils.data import DataLoader


def make_loader(folder):
    dataset = SyntheticDataset(folder)
    return DataLoader(dataset, batch_size=16, shuffle=True)


if __name__ == "__main__":
    train(make_loader(HERE))
