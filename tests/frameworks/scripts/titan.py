"""Pre-training as torchtitan does it: a trainer of its own, an endless stream, checkpoints of everything."""

import argparse
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

CHECKPOINT = Path("titan.pt")


class Tokens(IterableDataset):
    """Endless; each sequence takes 5 ms to arrive."""

    def __init__(self, length):
        self.length, self.number = length, 0

    def __iter__(self):
        while True:
            time.sleep(0.005)
            generator = torch.Generator().manual_seed(self.number)
            tokens = torch.randint(0, 100, (self.length + 1,), generator=generator)
            self.number += 1
            yield {"input": tokens[:-1]}, tokens[1:]

    def state_dict(self):
        return {"number": self.number}

    def load_state_dict(self, state):
        self.number = state["number"]


class RankLoader(StatefulDataLoader):
    def __init__(self, dataset, rank, **options):
        self.rank = rank
        super().__init__(dataset, **options)

    def state_dict(self):
        return {f"rank_{self.rank}": super().state_dict()}

    def load_state_dict(self, state):
        super().load_state_dict(state[f"rank_{self.rank}"])


class Trainer:
    def __init__(self, args):
        torch.manual_seed(1)
        self.args, self.step = args, 0
        self.dataloader = RankLoader(Tokens(16), 0, batch_size=4)
        self.model = nn.Sequential(nn.Embedding(100, 16), nn.Linear(16, 100))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.parts = {"model": self.model, "optimizer": self.optimizer, "dataloader": self.dataloader}

    def batches(self):
        iterator = iter(self.dataloader)
        while True:
            inputs, labels = next(iterator)
            yield inputs["input"], labels

    def train_step(self, batches):
        self.optimizer.zero_grad()
        for _ in range(2):  # micro-batches
            inputs, labels = next(batches)
            loss = nn.functional.cross_entropy(self.model(inputs).flatten(0, 1), labels.flatten())
            loss.backward()
        self.optimizer.step()
        return loss.item()

    def train(self):
        if CHECKPOINT.exists():
            state = torch.load(CHECKPOINT, weights_only=False)
            self.step = state.pop("step")
            for name, part in self.parts.items():
                part.load_state_dict(state[name])
        batches = self.batches()
        while self.step < self.args.steps:
            self.step += 1
            loss = self.train_step(batches)
            if self.step % 10 == 0:
                torch.save(
                    {name: part.state_dict() for name, part in self.parts.items()} | {"step": self.step},
                    CHECKPOINT,
                )
        print("loss", loss)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    Trainer(parser.parse_args()).train()
