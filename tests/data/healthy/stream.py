"""A stream that each worker reads a part of."""

import itertools

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Numbers(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for number in itertools.islice(range(400), first, None, step):
            yield torch.full((4,), float(number))


def main():
    loader = DataLoader(Numbers(), batch_size=10, num_workers=2)
    weight = torch.zeros(4, requires_grad=True)
    for batch in loader:
        (batch @ weight).sum().backward()


if __name__ == "__main__":
    main()
