"""Sentences of similar length in one batch, padded by a collate function."""

import random

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler


class Sentences(Dataset):
    def __init__(self):
        self.lengths = [5 + 7 * i % 40 for i in range(400)]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return torch.ones(self.lengths[index])


class Buckets(Sampler):
    def __init__(self, lengths, size):
        self.batches = sorted(range(len(lengths)), key=lengths.__getitem__)
        self.batches = [self.batches[i : i + size] for i in range(0, len(lengths), size)]

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(random.sample(self.batches, len(self.batches)))


def padded(sentences):
    return pad_sequence(sentences, batch_first=True)


def main():
    data = Sentences()
    loader = DataLoader(
        data,
        batch_sampler=Buckets(data.lengths, 16),
        collate_fn=padded,
        num_workers=2,
        persistent_workers=True,
    )
    weight = torch.zeros((), requires_grad=True)
    for _ in range(2):
        for batch in loader:
            (batch * weight).sum().backward()


if __name__ == "__main__":
    main()
