"""ResNet-50 on a GPU, fed with JPEGs in several ways.

Batches of 256 random crops of 224×224, bf16 autocast, channels_last, SGD; as many workers (or threads) as
cores. The ways take turns; the first table shows medians over the rounds, once workers and queues are warm:

    images/s    of training
    stall       share of that time in which the GPU was idle because training waited for data
    wait        share that the host spent in next(); the GPU may still be working then
    ceiling     images/s relative to batches that are already on the GPU

The second one, in Markdown, is about whole epochs, each with its start, of 25 and of 1,000 steps.

    python bench/device_images.py [--quick] [--model resnet18] [--epochs 25,1000]
    python bench/device_images.py --device cpu --model tiny --epochs 4,12    # without a GPU: only a trial
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

import unstarve
from unstarve.benchmark.bench_data import save_image
from unstarve.benchmark.optional_packages import torchvision
from unstarve.intervals import turn_order
from unstarve.record.run_reader import read_run

SIZE = 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PREFETCH = 2
ENOUGH = 10_000_000
"""Samples in an epoch: more than are ever used here."""
MOST_S = 225.0
"""No round is started that would end later."""


@dataclass(frozen=True)
class Setting:
    """What all ways have in common."""

    device: torch.device
    root: Path
    batch_size: int
    workers: int
    seconds: float
    """Seconds for which each way is measured in a round."""

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def warm_up_steps(self) -> int:
        """Seconds until batches arrive as fast as they are made, and none made ahead is left."""
        return self.workers * PREFETCH + 4

    steps: int | None = None
    """Steps in an epoch; None for one that does not end."""

    @property
    def samples(self) -> int:
        """Samples in an epoch."""
        return ENOUGH if self.steps is None else self.steps * self.batch_size

    def loader(self, kind: Callable[..., Any], dataset: Any) -> Any:
        """Return a shuffled loader; at the end of an epoch it restarts its workers."""
        return kind(
            dataset, batch_size=self.batch_size, num_workers=self.workers,
            prefetch_factor=PREFETCH if self.workers else None,
            sampler=RandomSampler(dataset, replacement=True, num_samples=self.samples),
            pin_memory=self.on_gpu, drop_last=True,
        )  # fmt: skip

    def dataset(self, **options: Any) -> Any:
        return unstarve.ImageFolderDataset(self.root, size=SIZE, mean=MEAN, std=STD, **options)


def stock(setting: Setting) -> Any:
    steps = torchvision().transforms
    transform = steps.Compose([
        steps.RandomResizedCrop(SIZE), steps.RandomHorizontalFlip(), steps.ToTensor(),
        steps.Normalize(MEAN, STD),
    ])  # fmt: skip
    return setting.loader(DataLoader, torchvision().datasets.ImageFolder(str(setting.root), transform))


def as_transform(setting: Setting) -> Any:
    transform = unstarve.DecodeCrop(SIZE, mean=MEAN, std=STD)
    folder = torchvision().datasets.ImageFolder(str(setting.root), transform, loader=str)
    return setting.loader(DataLoader, folder)


def ours(setting: Setting) -> Any:
    return setting.loader(unstarve.DataLoader, setting.dataset())


def ours_without_workers(setting: Setting) -> Any:
    return ours(replace(setting, workers=0))


def ours_as_bytes(setting: Setting) -> Any:
    plain = unstarve.ImageFolderDataset(
        setting.root, size=SIZE, dtype=torch.uint8, memory_format=torch.channels_last
    )
    return setting.loader(unstarve.DataLoader, plain)


class Kept:
    """Decoded in the first epoch, before anything is measured; for all rounds."""

    def __init__(self) -> None:
        self._dataset: Any = None

    def __call__(self, setting: Setting) -> Any:
        if self._dataset is None:
            self._dataset = setting.dataset(cache="ram")
            first: Any = unstarve.DataLoader(
                self._dataset, batch_size=setting.batch_size, num_workers=setting.workers
            )
            for _ in first:
                pass
        return setting.loader(unstarve.DataLoader, self._dataset)


class OnDevice(Dataset[Any]):
    """A few batches that are already on the device, over and over."""

    def __init__(self, setting: Setting) -> None:
        self._steps = setting.samples if setting.steps is None else setting.steps
        made: Any = unstarve.DataLoader(setting.dataset(), batch_size=setting.batch_size, drop_last=True)
        few = itertools.islice(made, 2)
        self._batches = [[part.to(setting.device) for part in batch] for batch in few]

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, index: int) -> Any:
        return self._batches[index % len(self._batches)]


class Ceiling:
    """Nothing to load; the same batches for all rounds."""

    def __init__(self) -> None:
        self._datasets: dict[int | None, OnDevice] = {}

    def __call__(self, setting: Setting) -> Any:
        if setting.steps not in self._datasets:
            self._datasets[setting.steps] = OnDevice(setting)
        return DataLoader(self._datasets[setting.steps], batch_size=None)


STOCK, CEILING = "DataLoader, PIL + torchvision", "on the GPU already"
Ways = dict[str, Callable[[Setting], Any]]


def all_ways() -> Ways:
    return {
        STOCK: stock,
        "DecodeCrop in DataLoader": as_transform,
        "ImageFolderDataset, ours": ours,
        "… uint8, normalized on GPU": ours_as_bytes,
        '… cache="ram", 2nd epoch on': Kept(),
        CEILING: Ceiling(),
    }


class Training:
    """A model and its step."""

    def __init__(self, name: str, setting: Setting) -> None:
        self._device = setting.device
        model: Any = tiny() if name == "tiny" else getattr(torchvision().models, name)()
        self._model = model.to(setting.device, memory_format=torch.channels_last)
        self._loss = torch.nn.CrossEntropyLoss()
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01, momentum=0.9)
        self._mean = 255 * torch.tensor(MEAN, device=setting.device).view(3, 1, 1)
        self._std = 255 * torch.tensor(STD, device=setting.device).view(3, 1, 1)

    def step(self, batch: Any) -> None:
        images, targets = (part.to(self._device, non_blocking=True) for part in batch)
        if images.dtype == torch.uint8:
            images = (images - self._mean) / self._std
        images = images.to(memory_format=torch.channels_last)
        with torch.autocast(self._device.type, torch.bfloat16):
            loss = self._loss(self._model(images), targets)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()

    def wait(self) -> None:
        """Wait until the device has finished."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def tiny() -> torch.nn.Module:
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(3, 4, 7, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1000))


@dataclass(frozen=True)
class Measured:
    images_per_s: float
    stall_share: float | None
    wait_share: float


def measure(loader: Iterable[Any], training: Training, setting: Setting, path: Path) -> Measured:
    steps = wait_ns = 0
    with unstarve.recording(path):
        batches = iter(loader)
        for _ in range(setting.warm_up_steps):
            training.step(next(batches))
        training.wait()
        begin_ns = ask_ns = time.perf_counter_ns()
        while ask_ns < begin_ns + setting.seconds * 1e9:
            batch = next(batches)
            wait_ns += time.perf_counter_ns() - ask_ns
            training.step(batch)
            steps += 1
            ask_ns = time.perf_counter_ns()
        training.wait()
        end_ns = time.perf_counter_ns()
        del batches
    wall_ns = end_ns - begin_ns
    stalls = list(stalls_ns(path, begin_ns, end_ns))
    return Measured(
        steps * setting.batch_size / wall_ns * 1e9,
        sum(stalls) / wall_ns if stalls else None,
        wait_ns / wall_ns,
    )


def measure_epochs(loader: Iterable[Any], training: Training, setting: Setting, path: Path) -> Measured:
    """Measure whole epochs, after one that nobody counts, for as long as the setting says."""
    steps = wait_ns = 0
    with unstarve.recording(path):
        for batch in itertools.islice(loader, 4):
            training.step(batch)
        training.wait()
        begin_ns = ask_ns = time.perf_counter_ns()
        while ask_ns < begin_ns + setting.seconds * 1e9:
            ask_ns = time.perf_counter_ns()
            for batch in loader:
                wait_ns += time.perf_counter_ns() - ask_ns
                training.step(batch)
                steps += 1
                ask_ns = time.perf_counter_ns()
        training.wait()
        end_ns = time.perf_counter_ns()
    wall_ns = end_ns - begin_ns
    stalls = list(stalls_ns(path, begin_ns, end_ns))
    return Measured(
        steps * setting.batch_size / wall_ns * 1e9,
        sum(stalls) / wall_ns if stalls else None,
        wait_ns / wall_ns,
    )


def stalls_ns(path: Path, begin_ns: int, end_ns: int) -> Iterator[int]:
    """Return the device's stalls that were recorded during this stretch."""
    for process in read_run(path).processes:
        for stall in process.stalls:
            if begin_ns <= stall.ask_ns and stall.got_ns <= end_ns:
                yield stall.stall_ns


def make_images(folder: Path, count: int) -> None:
    """Draw the images on all cores, before CUDA is initialized: processes are forked."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(partial(_save, folder), range(count), chunksize=8))


def _save(folder: Path, number: int) -> None:
    save_image(folder, number, np.random.default_rng(number))


def workers_that_fit(workers: int, batch_size: int) -> int:
    """Return fewer workers if shared memory is too small for the batches of so many."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        return workers
    batch_bytes = batch_size * 3 * SIZE * SIZE * 4
    room = shutil.disk_usage(shared).free * 0.8
    return max(1, min(workers, int(room / (batch_bytes * (PREFETCH + 1)))))


def tell(found: dict[str, list[Measured]]) -> None:
    rates = {name: statistics.median(one.images_per_s for one in each) for name, each in found.items()}
    print(f"\n{'':32}{'images/s':>10}{'vs stock':>10}{'ceiling':>10}{'stall':>8}{'wait':>8}")
    for name, each in found.items():
        stalls = [one.stall_share for one in each if one.stall_share is not None]
        stall = f"{statistics.median(stalls):.1%}" if stalls else "–"
        wait = f"{statistics.median(one.wait_share for one in each):.1%}"
        faster, share = rates[name] / rates[STOCK], rates[name] / rates[CEILING]
        print(f"{name:32}{rates[name]:10,.0f}{faster:9.2f}×{share:10.0%}{stall:>8}{wait:>8}")
    print("\neach round, images/s:")
    for name, each in found.items():
        print(f"{name:32}" + "".join(f"{one.images_per_s:9,.0f}" for one in each))


def rounds(setting: Setting, training: Training, most: int, began: float) -> dict[str, list[Measured]]:
    """Let the ways take turns while there is time."""
    ways = all_ways()
    found: dict[str, list[Measured]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(most):
            round_began = time.monotonic()
            for name in turn_order(list(ways), number):
                path = Path(folder) / f"{number}-{len(found[name])}-{list(ways).index(name)}.unstarve"
                one = measure(ways[name](setting), training, setting, path)
                found[name].append(one)
                print(f"  round {number + 1}, {name}: {one.images_per_s:,.0f} images/s", flush=True)
            now = time.monotonic()
            if now - began + (now - round_began) > MOST_S:
                break
    return found


EPOCH_WAYS: Ways = {
    STOCK: stock,
    "ImageFolderDataset, ours": ours,
    "the same, num_workers=0": ours_without_workers,
    CEILING: Ceiling(),
}


def tell_epochs(setting: Setting, training: Training, epochs: list[int]) -> None:
    """Print what epochs of these lengths reach, as a Markdown table."""
    print("\n| | " + " | ".join(f"{steps:,} steps: images/s | stall" for steps in epochs) + " |")
    print("|---" * (1 + 2 * len(epochs)) + "|")
    with tempfile.TemporaryDirectory() as folder:
        for name, make in EPOCH_WAYS.items():
            cells: list[str] = []
            for steps in epochs:
                one = replace(setting, steps=steps)
                path = Path(folder) / f"{len(cells)}-{list(EPOCH_WAYS).index(name)}.unstarve"
                found = measure_epochs(make(one), training, one, path)
                stall = found.wait_share if found.stall_share is None else found.stall_share
                cells += [f"{found.images_per_s:,.0f}", f"{stall:.0%}"]
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    if not setting.on_gpu:
        print("\nOn a CPU a stall is the wait itself.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round, shorter stretches")
    parser.add_argument("--model", default="resnet50", help="another model of torchvision, such as resnet18")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="default: one per core")
    parser.add_argument(
        "--epochs", type=lambda given: [int(steps) for steps in given.split(",")], default=[25, 1000],
        help="steps in the epochs of the second table, default: 25,1000",
    )  # fmt: skip
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a trial, with --model tiny"
    )
    arguments = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        root, on_gpu = Path(folder) / "images", arguments.device == "cuda"
        if on_gpu and not _has_driver():
            print("bench/device_images.py: no CUDA device, nothing to measure")
            return
        make_images(root, (512 if arguments.quick else 2048) if on_gpu else 32)
        batch_size = 256 if on_gpu else 8
        workers = workers_that_fit(arguments.workers, batch_size)
        seconds = (3.0 if arguments.quick else 4.0) if on_gpu else 0.5
        setting = Setting(torch.device(arguments.device), root, batch_size, workers, seconds)
        torch.backends.cudnn.benchmark = True
        name = torch.cuda.get_device_name() if on_gpu else "CPU, as a trial"
        print(
            f"{name}, {os.cpu_count()} cores, torch {torch.__version__}, Python {platform.python_version()}"
        )
        print(f"{arguments.model}, batches of {batch_size}, {workers} workers or threads", flush=True)
        training = Training(arguments.model, setting)
        tell(rounds(setting, training, 1 if arguments.quick else 3, began))
        tell_epochs(setting, training, arguments.epochs)


def _has_driver() -> bool:
    """Whether there is a device, checked without initializing CUDA in this process."""
    return torch.cuda.device_count() > 0


if __name__ == "__main__":
    main()
