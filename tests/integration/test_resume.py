"""A training that is killed and started again goes on exactly, also under `unstarve run`."""

from __future__ import annotations

from typing import Any

import pytest

TRAINING = """
import os, random, sys
import numpy as np
import torch
from torch.utils.data import Dataset
from unstarve import DataLoader

workers, engine, stop = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])

class Augmented(Dataset):
    def __len__(self):
        return 22
    def __getitem__(self, index):
        return index, torch.rand(()), np.random.rand(), random.random()

if __name__ == "__main__":
    resumed = os.path.exists("checkpoint.pt")
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(5 if resumed else 1)
    loader = DataLoader(Augmented(), batch_size=4, shuffle=True, num_workers=workers, engine=engine)
    step = epoch = 0
    if resumed:
        checkpoint = torch.load("checkpoint.pt")
        step, epoch = checkpoint["step"], checkpoint["epoch"]
        loader.load_state_dict(checkpoint["loader"])
    while epoch < 3:
        for index, *drawn in loader:
            numbers = [column.tolist() for column in drawn]
            print("batch", epoch, index.tolist(), numbers, torch.rand(()).item(), flush=True)
            step += 1
            if step == stop:
                torch.save({"loader": loader.state_dict(), "step": step, "epoch": epoch}, "checkpoint.pt")
                os._exit(3)
        epoch += 1
"""


@pytest.mark.parametrize(
    ("recorded", "workers", "engine"),
    [(False, 2, "ring"), (False, 0, "stock"), (True, 2, "stock"), (True, 2, "ring")],
)
def test_a_killed_training_goes_on_where_it_was(
    project: Any, recorded: bool, workers: int, engine: str
) -> None:
    script = project.write("train.py", TRAINING)
    checkpoint = script.parent / "checkpoint.pt"

    def train(stop: int) -> tuple[int, list[str]]:
        arguments = (script, str(workers), engine, str(stop))
        if recorded:
            done = project.unstarve("run", "--quiet", "python", *arguments)
        else:
            done = project.python(*arguments)
        return done.returncode, [line for line in done.stdout.splitlines() if line.startswith("batch")]

    code, whole = train(0)
    assert code == 0
    assert len(whole) == 18
    seen: list[str] = []
    for stop in (4, 6, 11):
        code, lines = train(stop)
        assert code == 3
        seen += lines
        assert checkpoint.exists()
    code, lines = train(0)
    assert code == 0
    assert seen + lines == whole
