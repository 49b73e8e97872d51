"""The baseline, and its settings as options. Leave it as it is; see python slow_dataloader.py --help."""

import argparse
from pathlib import Path

from photos import Photos, train
from torch.utils.data import DataLoader


def make_loader(folder, workers=1, prefetch=2, pin=False, persistent=False):
    return DataLoader(
        Photos(folder),
        batch_size=16,
        shuffle=True,
        num_workers=workers,
        prefetch_factor=prefetch if workers else None,
        pin_memory=pin,
        persistent_workers=persistent and workers > 0,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--persistent", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    options = vars(parser.parse_args())
    epochs = options.pop("epochs")
    train(make_loader(Path(__file__).parent, **options), epochs)
