"""The task both scripts share: image-like files and a small convolutional network."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

IMAGES = 512
SIDE = 112
CLASSES = 10
BATCH_SIZE = 32


def make_files(folder: Path) -> None:
    """Write the dataset, one file per image, unless it exists."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for number in range(IMAGES):
        path = folder / f"{number:04}.npy"
        if not path.exists():
            np.save(path, random.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8))


def labels() -> torch.Tensor:
    """The class of each image."""
    return torch.from_numpy(np.random.default_rng(1).integers(0, CLASSES, IMAGES))


def train(loader: Iterable[tuple[torch.Tensor, torch.Tensor]], epochs: int) -> None:
    """A plain training loop."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the model is too small to gain from a second core
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, kernel_size=7, stride=3),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, kernel_size=3, stride=2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * 2 * 2, CLASSES),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    for _ in range(epochs):
        for images, targets in loader:
            loss = torch.nn.functional.cross_entropy(model(images.to(device)), targets.to(device))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch does not type it
            optimizer.step()
            step += 1
            if step % 16 == 0:
                print(f"    step {step:3}  loss {loss.item():.3f}", flush=True)
