"""Which batch size fits? On the CPU, so that the answer is the same on every machine."""

from pathlib import Path

import torch

import unstarve
from unstarve.labs.leaks import drawn, make_batch, make_model

HERE = Path(__file__).parent


@unstarve.memory_profile
def step(model, batch):
    model(batch).sum().backward()


if __name__ == "__main__":
    torch.set_num_threads(1)
    limit = drawn(HERE).limit_bytes
    print(f"a step may take {limit / 1e6:.0f} MB")
    model = make_model(HERE)
    for count in (1, 256, 512, 1024):  # the first step of all also fills caches
        print(f"{count} samples:", flush=True)
        step(model, make_batch(HERE, count))
        model.zero_grad(set_to_none=True)
    # Your turn. Print this:
    # unstarve.largest_batch(model, lambda n: make_batch(HERE, n), limit=limit, sizes=(512, 1024, 1536))
