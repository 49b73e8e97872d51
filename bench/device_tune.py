"""How good the settings that the tuner finds are on scripts as people write them, and how long it takes.

Scripts train on image folders (0 and 4 workers; epochs of 25, 80 and 1,000 steps), on text that Python
tokenizes, on tensors that keep the device busy, and, in the order of Lightning's Trainer, after a sanity
check with its default of no workers. Each loader tunes itself as under `unstarve tune`, parts included,
for 150 steps or 60 seconds, whichever takes longer. Then a sweep over workers, our reading of images and
our hand-off is measured over whole epochs, starts of workers included; long epochs are cut to `--most`
steps. It is a measurement, not a gate: the exit code is always 0.

    python bench/device_tune.py                          on a GPU: ResNet-18 and ResNet-50
    python bench/device_tune.py --device cpu --small     anywhere, in minutes: small images, small networks
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from unstarve.benchmark.optional_packages import torchvision
from unstarve.model import LoaderSettings, Tuning
from unstarve.tune.autotune import tuner_for
from unstarve.tune.crews import make_crew
from unstarve.tune.index_stream import begin_stream

FOUR, NONE = LoaderSettings(4, 2), LoaderSettings(0)
_TUNING_S, _TUNING_STEPS = 60.0, 150


@dataclass(frozen=True)
class Size:
    """How large everything is."""

    batch: int
    files: int
    pixels: tuple[int, int]
    crop: int
    networks: tuple[str, ...]
    epochs: tuple[int, ...]
    most: int
    """Steps of an epoch that a sweep measures."""


LARGE = Size(256, 2048, (500, 375), 224, ("resnet18", "resnet50"), (25, 80, 1000), 100)
SMALL = Size(8, 64, (96, 72), 48, ("small",), (25, 80), 25)


@dataclass(frozen=True)
class Script:
    """A training: its data, its network and the user's own settings."""

    name: str
    data: Dataset[Any]
    network: Callable[[], nn.Module]
    batch: int
    own: LoaderSettings
    sanity: bool = False
    """Lightning's order: two validation batches before training."""

    def loader(self, settings: LoaderSettings) -> DataLoader[Any]:
        return DataLoader(
            self.data,
            self.batch,
            shuffle=True,
            num_workers=settings.num_workers,
            prefetch_factor=settings.prefetch_factor,
            pin_memory=torch.cuda.is_available(),
        )


class Text(Dataset[Any]):
    """Lines that Python splits into words and looks up, as tokenizers written by hand do."""

    def __init__(self, samples: int, words: int) -> None:
        draw = random.Random(0)
        self._vocabulary = {f"word{n}": n for n in range(5000)}
        names = list(self._vocabulary)
        self._lines = [" ".join(draw.choices(names, k=words)) for _ in range(64)]
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        words = self._lines[index % len(self._lines)].lower().split()
        return torch.tensor([self._vocabulary[word] for word in words]), index % 10


def scripts(size: Size, folder: Path) -> Iterator[Script]:
    with contextlib.suppress(ImportError):
        yield from image_scripts(size, folder)
    words = 2000 if size is LARGE else 300
    text = Text(25 * size.batch, words)
    yield Script(
        "text, 4 workers, 25 steps", text, lambda: nn.Sequential(Mean(), nn.Linear(1, 10)), size.batch, FOUR
    )
    rows = TensorDataset(torch.randn(25 * size.batch, 1024), torch.zeros(25 * size.batch, dtype=torch.long))
    yield Script("GPU-bound, 4 workers, 25 steps", rows, heavy, size.batch, LoaderSettings(4, 2))


class Mean(nn.Module):
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens.float().mean(1, keepdim=True)


def heavy() -> nn.Module:
    width = 8192 if torch.cuda.is_available() else 1024
    layers = [nn.Linear(1024, width), *(nn.Linear(width, width) for _ in range(6)), nn.Linear(width, 10)]
    return nn.Sequential(*layers)


def image_scripts(size: Size, folder: Path) -> Iterator[Script]:
    vision = torchvision()  # also where its compiled part is missing
    models, steps_of = vision.models, vision.transforms
    steps = [steps_of.RandomResizedCrop(size.crop), steps_of.RandomHorizontalFlip(), steps_of.ToTensor()]
    transform = steps_of.Compose([*steps, steps_of.Normalize([0.5] * 3, [0.25] * 3)])
    images = vision.datasets.ImageFolder(str(write_images(size, folder)), transform)
    for name, own, steps in itertools.product(size.networks, (NONE, FOUR), size.epochs):
        picked = Subset(images, [n % len(images) for n in range(steps * size.batch)])
        network = small_network if name == "small" else getattr(models, name)
        title = f"{name}, {own.num_workers} workers, {steps} steps"
        yield Script(title, picked, network, size.batch, own)
    picked = Subset(images, [n % len(images) for n in range(size.epochs[0] * size.batch)])
    network = small_network if size.networks[0] == "small" else getattr(models, size.networks[0])
    # Lightning's defaults are no workers and a sanity check first; its order is all that matters here.
    yield Script("Lightning's defaults", picked, network, size.batch, NONE, sanity=True)


def small_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    )


def write_images(size: Size, folder: Path) -> Path:
    draw = random.Random(0)
    for number in range(size.files):
        place = folder / f"class{number % 2}"
        place.mkdir(exist_ok=True)
        noise = Image.frombytes("RGB", (32, 24), draw.randbytes(32 * 24 * 3))
        noise.resize(size.pixels, Image.Resampling.BICUBIC).save(place / f"{number}.jpg", quality=90)
    return folder


def trainer(script: Script, device: str) -> Callable[[Any], None]:
    torch.manual_seed(0)
    net = script.network().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step(batch: Any) -> None:
        inputs, targets = (part.to(device, non_blocking=True) for part in batch)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), targets).backward()
        optimizer.step()

    return step


def tune(script: Script, step: Callable[[Any], None]) -> tuple[Tuning, float, int]:
    """Train until tuning has settled or has had its 150 steps and 60 seconds."""
    loader = script.loader(script.own)
    if script.sanity:
        with torch.no_grad():
            for _ in itertools.islice(loader, 2):
                pass
    tuner = tuner_for(loader, {"images": True, "parts": True})
    begun, steps = time.perf_counter(), 0
    while True:
        for batch in tuner.iterate(loader):
            step(batch)
            steps += 1
            spent_s = time.perf_counter() - begun
            if tuner.tuning.settled or (spent_s > _TUNING_S and steps > _TUNING_STEPS):
                return tuner.tuning, spent_s, steps


def rate(script: Script, step: Callable[[Any], None], settings: LoaderSettings, most: int) -> float:
    """Samples per second over a whole epoch, the start of its workers included, or over its first steps."""
    loader = script.loader(LoaderSettings(settings.num_workers, settings.prefetch_factor))
    begun, samples = time.perf_counter(), 0
    stream, seeds = begin_stream(loader, None)
    crew = make_crew(loader, stream, settings, next(seeds), ring=False)
    try:
        for batch in itertools.islice(crew, most):
            step(batch)
            samples += len(batch[1])
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return samples / (time.perf_counter() - begun)
    finally:
        crew.close()


def grid(tuning: Tuning, cores: int) -> list[LoaderSettings]:
    counts = sorted({1, 2, 4, 8, 16, cores, tuning.chosen.num_workers} - {0})
    kinds: list[dict[str, bool]] = [{}, {"ring": True}]
    if not any("read the images" in note for note in tuning.notes):
        kinds.append({"images": True})
    return [NONE, *(LoaderSettings(n, 2, **kind) for kind in kinds for n in counts)]


def judge(script: Script, device: str, most: int) -> None:
    """Print a line."""
    step = trainer(script, device)
    tuning, took_s, steps = tune(script, step)
    swept: dict[LoaderSettings, float] = {}
    for one in dict.fromkeys([*grid(tuning, len(os.sched_getaffinity(0))), script.own, tuning.chosen]):
        with contextlib.suppress(Exception):  # this loader cannot have that part
            swept[one] = rate(script, step, one, most)
    best = max(swept, key=swept.__getitem__)
    stock = swept.get(FOUR)
    chosen = swept[tuning.chosen]
    print(
        f"{script.name:<32}{brief(script.own):>6}{brief(tuning.chosen):>8}{brief(best):>8}"
        f"{chosen / swept[best]:>8.2f}{chosen / swept[script.own]:>8.2f}"
        f"{chosen / stock if stock else float('nan'):>10.2f}{took_s:>9.1f}{steps:>7}  {tuning.reason}",
        flush=True,
    )


def brief(settings: LoaderSettings) -> str:
    mark = "*" if settings.images else "°" if settings.ring else ""
    return f"{settings.num_workers}{mark}×{settings.prefetch_factor or 0}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="small images and networks")
    parser.add_argument("--only", metavar="TEXT", default="", help="scripts whose name contains this")
    parser.add_argument("--most", type=int, help="steps of an epoch that the sweep measures")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    size = SMALL if options.small else LARGE
    name = torch.cuda.get_device_name() if options.device.startswith("cuda") else options.device
    print(f"{name}, {len(os.sched_getaffinity(0))} cores, torch {torch.__version__}; workers × prefetch,")
    print("* our reading of images, ° our hand-off\n")
    print("script                             own   tuned    best  ÷ best   ÷ own ÷ 4 stock  took, s  steps")
    with tempfile.TemporaryDirectory() as folder:
        for script in scripts(size, Path(folder)):
            if options.only in script.name:
                judge(script, options.device, options.most or size.most)


if __name__ == "__main__":
    main()
