"""Classes balanced by a weighted sampler, which draws with replacement."""

import torch
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

labels = torch.cat([torch.zeros(900), torch.ones(100)]).long()
data = TensorDataset(torch.randn(1000, 4), labels)
weights = torch.where(labels == 0, 1 / 900, 1 / 100)
loader = DataLoader(data, batch_size=32, sampler=WeightedRandomSampler(weights, len(data)))
model = torch.nn.Linear(4, 2)
for _ in range(2):
    for x, y in loader:
        torch.nn.functional.cross_entropy(model(x), y).backward()
        model.zero_grad()
