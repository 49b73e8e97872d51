"""Trainings on a GPU, fed in several ways, with few and with many CPU cores.

Batches of 256 random crops of 224×224, bf16 autocast, channels_last, SGD, as many workers (or threads) as
cores. Each row of the Markdown table is one way to feed the model:

    images/s    of training, with the start of every epoch
    of ceiling  relative to batches that are already on the GPU, all the time
    stall       share of the time in which the GPU was idle because training waited for data

Rows without a model say how fast batches can be had if nobody trains. A cell is measured for `--seconds`: as
many whole epochs as that takes, or the beginning of one. The rest of a longer epoch counts as if it went on
at the pace of two rounds of its workers or more. Every number of cores has its own process, which is kept to
these cores from its start. Each row is printed when it is known; `--limit` ends the whole in time, and says
what is missing.

With `--profiler`, torch.profiler watches too, and a second share follows: how long nothing ran on training's
stream during the waits. That costs training some speed.

With `--overhead`, batches that are on the GPU already are trained on with and without recording, in turns, in
five runs of each: the ratio is the median of the five.

    python bench/device_images.py [--models resnet50 vit_b_16] [--data jpeg tensors] [--cores 2 4 8 16]
    python bench/device_images.py --profiler
    python bench/device_images.py --overhead
    python bench/device_images.py --device cpu --models tiny --epochs 4 12    # without a GPU: only a trial
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from device_truth import device_work, merged, starved_ns
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, Dataset, RandomSampler

import unstarve
from unstarve.benchmark.bench_data import save_image
from unstarve.benchmark.optional_packages import torchvision
from unstarve.intervals import turn_order
from unstarve.machine import usable_cores
from unstarve.record.run_reader import read_run

SIZE = 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PREFETCH = 2
FILES = 1024
WARM_UP_STEPS = 8
PAIRS = 5
TRAINING_STREAM = 7
"""The default stream's number in traces."""
CELL = 2.5
"""How much longer a cell takes than it is measured: workers start, the model warms up, the run is read."""


@dataclass(frozen=True)
class Setting:
    """What all ways have in common."""

    device: torch.device
    root: Path
    batch_size: int
    workers: int
    steps: int
    """Steps in an epoch."""

    def loader(self, kind: Callable[..., Any], dataset: Any, **options: Any) -> Any:
        """Return a shuffled loader that restarts its workers for every epoch."""
        options = {"pin_memory": self.device.type == "cuda", "num_workers": self.workers} | options
        return kind(
            dataset,
            batch_size=self.batch_size,
            prefetch_factor=PREFETCH if options["num_workers"] else None,
            sampler=RandomSampler(dataset, replacement=True, num_samples=self.steps * self.batch_size),
            drop_last=True,
            **options,
        )

    def images(self, **options: Any) -> Any:
        return unstarve.ImageFolderDataset(self.root / "jpeg", size=SIZE, mean=MEAN, std=STD, **options)

    def tensors(self) -> list[str]:
        return sorted(map(str, (self.root / "tensors").glob("*.pt")))


def stock_images(setting: Setting) -> Any:
    steps = torchvision().transforms
    transform = steps.Compose([
        steps.RandomResizedCrop(SIZE), steps.RandomHorizontalFlip(), steps.ToTensor(),
        steps.Normalize(MEAN, STD),
    ])  # fmt: skip
    return setting.loader(
        DataLoader, torchvision().datasets.ImageFolder(str(setting.root / "jpeg"), transform)
    )


def on_the_cpu(setting: Setting) -> Any:
    return setting.loader(unstarve.DataLoader, setting.images())


def on_the_gpu(setting: Setting) -> Any:
    decode = "cuda" if setting.device.type == "cuda" else "auto"
    return setting.loader(unstarve.DataLoader, setting.images(decode=decode))


class Loaded(Dataset[Any]):
    """Images as uint8 tensors in `.pt` files, as people load them."""

    def __init__(self, paths: list[str]) -> None:
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.load(self._paths[index]), index % 1000


def stock_tensors(setting: Setting) -> Any:
    return setting.loader(DataLoader, Loaded(setting.tensors()))


def our_tensors(setting: Setting) -> Any:
    paths = setting.tensors()
    labels = [number % 1000 for number in range(len(paths))]
    return setting.loader(unstarve.DataLoader, unstarve.TensorFileDataset(paths, labels=labels))


def moved_ahead(setting: Setting) -> Any:
    return unstarve.to_device(our_tensors(setting), setting.device)


class OnDevice(Dataset[Any]):
    """A few batches that are already on the device, over and over."""

    def __init__(self, setting: Setting) -> None:
        self._steps = setting.steps
        draw = torch.Generator().manual_seed(0)
        shape = setting.batch_size, 3, SIZE, SIZE
        self._batches = [
            [
                torch.randn(shape, generator=draw).to(setting.device),
                torch.arange(setting.batch_size, device=setting.device),
            ]
            for _ in range(2)
        ]

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, index: int) -> Any:
        return self._batches[index % len(self._batches)]


def there_already(setting: Setting) -> Any:
    return DataLoader(OnDevice(setting), batch_size=None)


CEILING = "on the GPU already"
WAYS: dict[str, dict[str, Callable[[Setting], Any]]] = {
    "jpeg": {
        "PIL and torchvision in DataLoader": stock_images,
        "ImageFolderDataset": on_the_cpu,
        'ImageFolderDataset(decode="cuda")': on_the_gpu,
    },
    "tensors": {
        "torch.load in DataLoader": stock_tensors,
        "TensorFileDataset": our_tensors,
        "… in to_device": moved_ahead,
    },
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


class NoTraining(Training):
    """Takes batches as fast as they come."""

    def __init__(self, setting: Setting) -> None:
        self._device = setting.device

    def step(self, batch: Any) -> None:
        """Do nothing with it."""


def tiny() -> torch.nn.Module:
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(3, 4, 7, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1000))


@dataclass(frozen=True)
class Measured:
    images_per_s: float
    stall_share: float
    profiled_share: float | None
    """The same by torch.profiler, where it watched."""

    @property
    def stall(self) -> str:
        if self.profiled_share is None:
            return f"{self.stall_share:.0%}"
        return f"{self.stall_share:.1%} ({self.profiled_share:.1%})"


def measure(
    loader: Iterable[Any], training: Training, setting: Setting, seconds: float, *, profiled: bool = False
) -> Measured:
    """Train for these seconds, after the beginning of an epoch that nobody counts."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run.unstarve"
        with unstarve.recording(run):
            begun_ns = time.perf_counter_ns()
            for number, batch in enumerate(loader):
                training.step(batch)
                if number == WARM_UP_STEPS or time.perf_counter_ns() - begun_ns > 1e9 * seconds:
                    break
            training.wait()
            with profile(activities=[ProfilerActivity.CUDA]) if profiled else nullcontext() as profiler:
                begun_ns = time.perf_counter_ns()
                trained = train(loader, training, setting, seconds)
        stalls = [
            stall
            for process in read_run(run).processes
            for stall in process.stalls
            if begun_ns <= stall.ask_ns and stall.got_ns <= trained.ended_ns
        ]
    lasted_ns = trained.ended_ns - begun_ns
    profiled_share = None
    if profiler is not None:
        since_1970_ns = time.time_ns() - time.perf_counter_ns()
        work = ((a - since_1970_ns, b - since_1970_ns) for a, b in device_work(profiler, TRAINING_STREAM))
        waits = sorted((stall.ask_ns, stall.got_ns) for stall in stalls)
        profiled_share = starved_ns(merged(work, begun_ns, trained.ended_ns), waits) / lasted_ns
    stalled_ns = sum(stall.stall_ns for stall in stalls)
    return Measured(setting.batch_size / trained.step_s, stalled_ns / lasted_ns, profiled_share)


@dataclass(frozen=True)
class Trained:
    step_s: float
    """Seconds a step, with its part of an epoch's start."""
    ended_ns: int


def train(loader: Iterable[Any], training: Training, setting: Setting, seconds: float) -> Trained:
    """Train for whole epochs, the last of which may be extrapolated from three rounds of the workers.

    Workers begin together, so their batches come in bursts: what is between whole rounds is the pace.
    """
    begun_s, done = time.perf_counter(), 0
    while True:
        first_s, batches = 0.0, iter(loader)
        for number, batch in enumerate(batches):
            training.step(batch)
            if number == setting.workers:
                training.wait()
                first_s = time.perf_counter()
            is_round = number % setting.workers == 0 and number >= 3 * setting.workers
            if is_round and time.perf_counter() > begun_s + seconds:
                break
        training.wait()  # the workers of an epoch that is cut off are still alive
        ended_s, ended_ns = time.perf_counter(), time.perf_counter_ns()
        done += setting.steps
        if (missing := setting.steps - number - 1) > 0:
            pace_s = (ended_s - first_s) / (number - setting.workers)
            return Trained((ended_s - begun_s + missing * pace_s) / done, ended_ns)
        if ended_s > begun_s + seconds:
            return Trained((ended_s - begun_s) / done, ended_ns)


def overhead(training: Training, setting: Setting, seconds: float) -> list[float]:
    """Return the time of a step with recording, relative to one without: for each of five pairs of runs."""
    loader = there_already(setting)
    train(loader, training, setting, seconds)
    pairs = []
    for number in range(PAIRS):
        took_s = {}
        for recorded in turn_order((True, False), number):
            with tempfile.TemporaryDirectory() as folder:
                run = Path(folder) / "run.unstarve"
                with unstarve.recording(run) if recorded else nullcontext():
                    took_s[recorded] = train(loader, training, setting, seconds).step_s
        pairs.append(took_s[True] / took_s[False])
    return pairs


def tell_overhead(options: argparse.Namespace, cores: int) -> None:
    device = torch.device(options.device)
    for model in options.models:
        setting = Setting(device, options.folder, batch_size_on(device), cores, options.epochs[-1])
        pairs = sorted(
            100 * (ratio - 1) for ratio in overhead(Training(model, setting), setting, options.seconds)
        )
        spread = f"{pairs[0]:+.2f} to {pairs[-1]:+.2f}%"
        print(f"| {cores} | {model} | {statistics.median(pairs):+.2f}% | {spread} |", flush=True)


def batch_size_on(device: torch.device) -> int:
    return 256 if device.type == "cuda" else 8


def tell(options: argparse.Namespace, cores: int) -> None:
    """Print a row for each model and way; run with these cores only."""
    device = torch.device(options.device)
    if "jpeg" in options.data:
        setting = Setting(device, options.folder, batch_size_on(device), cores, options.epochs[-1])
        for name, make in list(WAYS["jpeg"].items())[1:]:
            if options.only not in name:
                continue
            alone = measure(make(setting), NoTraining(setting), setting, options.seconds)
            cells = [*(["", "", ""] * (len(options.epochs) - 1)), f"{alone.images_per_s:,.0f}", "", ""]
            print(f"| {cores} | none | {name} | " + " | ".join(cells) + " |", flush=True)
    for model in options.models:
        size = batch_size_on(device)
        settings = [Setting(device, options.folder, size, cores, steps) for steps in options.epochs]
        training = Training(model, settings[0])
        measured = partial(measure, training=training, seconds=options.seconds, profiled=options.profiler)
        ceiling = measured(there_already(settings[-1]), setting=settings[-1])
        for data in options.data:
            for name, make in WAYS[data].items():
                if options.only not in name:
                    continue
                cells = []
                if time.time() + len(settings) * CELL * options.seconds > options.until:
                    print(f"| {cores} | {model} | {name} | not measured: the time is up |", flush=True)
                    continue
                for setting in settings:
                    found = measured(make(setting), setting=setting)
                    share = found.images_per_s / ceiling.images_per_s
                    cells += [f"{found.images_per_s:,.0f}", f"{share:.0%}", found.stall]
                print(f"| {cores} | {model} | {name} | " + " | ".join(cells) + " |", flush=True)
        empty = ["", "", ""] * (len(settings) - 1)
        cells = [*empty, f"{ceiling.images_per_s:,.0f}", "100%", ceiling.stall]
        print(f"| {cores} | {model} | {CEILING} | " + " | ".join(cells) + " |", flush=True)


def make_images(folder: Path, count: int) -> None:
    """Draw the images on all cores, before CUDA is initialized: processes are forked."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(partial(_save, folder), range(count), chunksize=8))


def _save(folder: Path, number: int) -> None:
    save_image(folder, number, np.random.default_rng(number))


def make_tensors(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    draw = torch.Generator().manual_seed(0)
    for number in range(count):
        pixels = torch.randint(0, 256, (3, SIZE, SIZE), generator=draw, dtype=torch.uint8)
        torch.save(pixels, folder / f"{number:05}.pt")


def headers(epochs: list[int], *, of_overhead: bool) -> Iterator[str]:
    if of_overhead:
        yield f"| cores | model | recording costs, median of {PAIRS} | range |"
        yield "|---" * 4 + "|"
        return
    cells = [f"{steps:,} steps an epoch: images/s | of ceiling | stall" for steps in epochs]
    yield "| cores | model | fed by | " + " | ".join(cells) + " |"
    yield "|---" * (3 + 3 * len(epochs)) + "|"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["resnet50", "vit_b_16"], metavar="NAME")
    parser.add_argument("--only", default="", metavar="TEXT", help="ways whose name contains this")
    parser.add_argument("--data", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--cores", nargs="+", type=int, default=[2, 4, 8, 16], metavar="N")
    parser.add_argument("--epochs", nargs="+", type=int, default=[25, 1000], metavar="STEPS")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="for each cell")
    parser.add_argument("--limit", type=float, default=math.inf, metavar="S", help="for everything")
    parser.add_argument("--profiler", action="store_true", help="torch.profiler's share beside ours")
    parser.add_argument("--overhead", action="store_true", help="what recording costs, instead")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a trial")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # of the data: a process of our own
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)  # for such a process
    options = parser.parse_args()
    if options.folder is not None:
        torch.set_num_threads(usable_cores())
        torch.backends.cudnn.benchmark = True
        (tell_overhead if options.overhead else tell)(options, usable_cores())
        return
    until = time.time() + options.limit
    if options.device == "cuda" and torch.cuda.device_count() == 0:  # asked without initializing CUDA
        print("bench/device_images.py: no CUDA device, nothing to measure")
        return
    place = name_of_gpu() if options.device == "cuda" else "CPU, as a trial"
    print(f"{place}, torch {torch.__version__}, Python {platform.python_version()}, {time.strftime('%F')}\n")
    for line in headers(options.epochs, of_overhead=options.overhead):
        print(line, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        files = FILES if options.device == "cuda" else 32
        if "jpeg" in options.data and not options.overhead:
            make_images(Path(folder) / "jpeg", files)
        if "tensors" in options.data and not options.overhead:
            make_tensors(Path(folder) / "tensors", files)
        mine = sorted(os.sched_getaffinity(0))
        for cores in options.cores:
            if cores <= len(mine):
                os.sched_setaffinity(0, mine[:cores])  # inherited
                os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"  # models are made before datasets here
                measure_in_process([*sys.argv, "--folder", folder, "--until", str(until)], until)
                os.sched_setaffinity(0, mine)


def measure_in_process(command: list[str], until: float) -> None:
    """Run a process of our own; one that does not end by itself is killed, and what it printed counts."""
    try:
        subprocess.run([sys.executable, *command], check=False, timeout=max(until - time.time(), 1.0))
    except subprocess.TimeoutExpired:
        print("the time is up", flush=True)


def name_of_gpu() -> str:
    """Ask another process: with a CUDA context, this one would be another user of the GPU."""
    command = [sys.executable, "-c", "import torch; print(torch.cuda.get_device_name())"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
