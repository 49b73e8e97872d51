"""The training after somebody repaired one thing in it. Which one? The trace tells."""

from pathlib import Path

import torch

from unstarve.labs.traced import train

if __name__ == "__main__":
    torch.set_num_threads(1)
    train(Path(__file__).parent, fast=True)
