"""The data and the training loop that both versions share. The data is made up, the work is real."""

import sys

import numpy as np
import torch
from torch.utils.data import Dataset

from unstarve.labs.specs.tune import rounds_of
from unstarve.labs.step import Step
from unstarve.labs.workload import Workload


def decode(image, rounds):
    weight = np.ones_like(image)
    for _ in range(rounds):
        weight = np.sqrt(weight + 0.25)
    return image * weight


def denoise(image, rounds):
    weight = np.ones_like(image)
    for _ in range(rounds):
        weight = np.sqrt(weight + 0.5)
    return image * weight


def equalize(image, rounds):
    weight = np.ones_like(image)
    for _ in range(rounds):
        weight = np.sqrt(weight + 0.75)
    return image * weight


def sharpen(image, rounds):
    weight = np.ones_like(image)
    for _ in range(rounds):
        weight = np.sqrt(weight + 1.25)
    return image * weight


class Photos(Dataset):
    def __init__(self, folder):
        self.workload = Workload(folder, samples=256)
        self.rounds = rounds_of(folder)

    def __len__(self):
        return self.workload.samples

    def __getitem__(self, index):
        image = self.workload.sample(index).numpy()
        for function in (decode, denoise, equalize, sharpen):
            image = function(image, self.rounds[function.__name__])
        return torch.from_numpy(image)


def train(loader, epochs):
    torch.set_num_threads(1)
    step = Step(8.0)
    for epoch in range(epochs):
        for batch in loader:
            step(batch)
        print(f"epoch {epoch + 1} of {epochs}", file=sys.stderr)
