"""Your version: change make_loader, and photos.py if you like. The samples must stay the same."""

from pathlib import Path

from photos import Photos, train
from torch.utils.data import DataLoader


def make_loader(folder):
    return DataLoader(Photos(folder), batch_size=16, shuffle=True, num_workers=1)


if __name__ == "__main__":
    train(make_loader(Path(__file__).parent), epochs=4)
