"""The training as it is. Its parts are in unstarve.labs.traced; do not read them there, read the trace."""

from pathlib import Path

import torch

from unstarve.labs.traced import train

if __name__ == "__main__":
    torch.set_num_threads(1)
    train(Path(__file__).parent, fast=False)
