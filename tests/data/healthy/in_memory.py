"""A small dataset in memory, without workers."""

import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(640, 8), torch.randint(0, 10, (640,)))
loader = DataLoader(data, batch_size=32, shuffle=True)
model = torch.nn.Linear(8, 10)
for _ in range(2):
    for x, y in loader:
        torch.nn.functional.cross_entropy(model(x), y).backward()
        model.zero_grad()
