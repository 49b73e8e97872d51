"""One rank's share of the data, shuffled anew in every epoch."""

import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

data = TensorDataset(torch.randn(800, 4))
sampler = DistributedSampler(data, num_replicas=2, rank=0)
loader = DataLoader(data, batch_size=20, sampler=sampler)
weight = torch.zeros(4, requires_grad=True)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for (batch,) in loader:
        (batch @ weight).sum().backward()
