"""A map-style dataset, shuffled, with workers that stay."""

import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 320

    def __getitem__(self, index):
        return torch.full((8,), float(index)), index % 10


def main():
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Rows(), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
    for _ in range(2):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
