"""The task both scripts share: image-like files, a small model, a device that may have to be simulated."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

IMAGES = 512
SIDE = 112
CLASSES = 10
BATCH_SIZE = 32
STEP_S = 0.025
"""What a step takes on the simulated device."""


def has_device() -> bool:
    """Whether there is a real accelerator to train on."""
    return torch.cuda.is_available()


def make_files(folder: Path) -> None:
    """Write the data set, one file per image, unless it is there already."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for number in range(IMAGES):
        path = folder / f"{number:04}.npy"
        if not path.exists():
            np.save(path, random.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8))


def labels() -> torch.Tensor:
    """The right answer for each image."""
    return torch.from_numpy(np.random.default_rng(1).integers(0, CLASSES, IMAGES))


def train(loader: Iterable[tuple[torch.Tensor, torch.Tensor]], epochs: int) -> None:
    """A training loop like anybody's."""
    device = torch.device("cuda" if has_device() else "cpu")
    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a model is not worth waking a second core
    model = torch.nn.Sequential(
        torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(3 * (SIDE // 8) ** 2, CLASSES)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    for _ in range(epochs):
        for images, targets in loader:
            loss = torch.nn.functional.cross_entropy(model(images.to(device)), targets.to(device))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch does not type it
            optimizer.step()
            if device.type == "cpu":
                time.sleep(STEP_S)  # the simulated device works, the CPU is free
            step += 1
            if step % 16 == 0:
                print(f"    step {step:3}  loss {loss.item():.3f}", flush=True)
