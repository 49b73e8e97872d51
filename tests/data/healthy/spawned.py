"""Workers that are spawned: all they need can be pickled, and the script has a main guard."""

import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 200

    def __getitem__(self, index):
        return torch.full((4,), float(index))


def stacked(rows):
    return torch.stack(rows)


def main():
    loader = DataLoader(
        Rows(),
        batch_size=10,
        shuffle=True,
        num_workers=1,
        collate_fn=stacked,
        multiprocessing_context="spawn",
    )
    weight = torch.zeros(4, requires_grad=True)
    for batch in loader:
        (batch @ weight).sum().backward()


if __name__ == "__main__":
    main()
