"""Training and validation in turns, each with its own loader."""

import torch
from torch.utils.data import DataLoader, TensorDataset, random_split

data = TensorDataset(torch.randn(800, 6), torch.randint(0, 3, (800,)))
train_set, val_set = random_split(data, [640, 160])
train_loader = DataLoader(train_set, batch_size=20, shuffle=True)
val_loader = DataLoader(val_set, batch_size=40)
model = torch.nn.Linear(6, 3)
for _ in range(2):
    for x, y in train_loader:
        torch.nn.functional.cross_entropy(model(x), y).backward()
        model.zero_grad()
    with torch.no_grad():
        for x, y in val_loader:
            (model(x).argmax(1) == y).float().mean()
