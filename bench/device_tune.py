"""How good the settings that the tuner finds are on scripts as people write them, and how long it takes.

Scripts train on image folders (0 and 4 workers; epochs of 25, 80 and 1,000 steps), on text that Python
tokenizes, on tensors that keep the device busy, and, in the order of Lightning's Trainer, after a sanity
check with its default of no workers. On a GPU, networks run in bfloat16 and channels_last.

Each loader tunes itself as under `unstarve tune`, parts included, for a minute at most. Then a sweep over
workers, our reading of images, on the CPU and on the GPU, our hand-off, and texts kept in memory (from the
second epoch on) is measured, the most promising settings first. A measurement takes `--seconds` at most: a
whole epoch with the start of its workers if that fits; otherwise the start, and the rate after it for the
rest of the epoch. A setting that is at less than half of the best rate when half of this time is over is
given up. When `--budget` is spent, the settings that are left are not measured, and the line says how many.
It is a measurement, not a gate: the exit code is always 0.

    python bench/device_tune.py                          on a GPU: ResNet-18 and ResNet-50
    python bench/device_tune.py --scripts "resnet50, 4" "text" --verbose
    python bench/device_tune.py --device cpu --small     anywhere, in minutes: small images, small networks
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from unstarve.analyze.trial_table import so_far
from unstarve.benchmark.optional_packages import torchvision
from unstarve.model import LoaderSettings, Tuning
from unstarve.model.parts import CACHED, GPU_IMAGES, IMAGES, RING
from unstarve.tune.autotune import tuner_for
from unstarve.tune.crews import make_crew
from unstarve.tune.explain import describe, explain
from unstarve.tune.index_stream import begin_stream
from unstarve.tune.sample_cache import CachedLoader, try_cache

FOUR, NONE = LoaderSettings(4, 2), LoaderSettings(0)
_TUNING_S = 60.0
_HOPELESS = 0.5
"""A setting at less than this share of the best rate is given up when half of its time is over."""
_WARM_UP = 5
"""Steps before anything is timed: the device's libraries choose their kernels in them."""


@dataclass(frozen=True)
class Size:
    """How large everything is."""

    batch: int
    files: int
    pixels: tuple[int, int]
    crop: int
    networks: tuple[str, ...]
    epochs: tuple[int, ...]


LARGE = Size(256, 2048, (500, 375), 224, ("resnet18", "resnet50"), (25, 80, 1000))
SMALL = Size(8, 64, (96, 72), 48, ("small",), (25, 80))


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
    yield Script("GPU-bound, 4 workers, 25 steps", rows, Heavy, size.batch, FOUR)


class Mean(nn.Module):
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens.float().mean(1, keepdim=True)


class Heavy(nn.Module):
    """Keeps the device busy for tens of milliseconds a step."""

    def __init__(self) -> None:
        super().__init__()
        width = 8192 if torch.cuda.is_available() else 1024
        self._first, self._last = nn.Linear(1024, width), nn.Linear(width, 10)
        self._middle = nn.Linear(width, width)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        rows = self._first(rows)
        for _ in range(120 if rows.is_cuda else 6):
            rows = self._middle(rows).tanh()
        out: torch.Tensor = self._last(rows)
        return out


def image_scripts(size: Size, folder: Path) -> Iterator[Script]:
    vision = torchvision()  # also where its compiled part is missing
    models, steps_of = vision.models, vision.transforms
    parts = [steps_of.RandomResizedCrop(size.crop), steps_of.RandomHorizontalFlip(), steps_of.ToTensor()]
    transform = steps_of.Compose([*parts, steps_of.Normalize([0.5] * 3, [0.25] * 3)])
    images = vision.datasets.ImageFolder(str(write_images(size, folder)), transform)

    def script(title: str, name: str, own: LoaderSettings, steps: int, **more: bool) -> Script:
        picked = Subset(images, [n % len(images) for n in range(steps * size.batch)])
        network = small_network if name == "small" else getattr(models, name)
        return Script(title, picked, network, size.batch, own, **more)

    for name, own, steps in itertools.product(size.networks, (NONE, FOUR), size.epochs):
        yield script(f"{name}, {own.num_workers} workers, {steps} steps", name, own, steps)
    # Lightning's defaults are no workers and a sanity check first; its order is all that matters here.
    yield script("Lightning's defaults", size.networks[0], NONE, size.epochs[0], sanity=True)


def small_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    )


def write_images(size: Size, folder: Path) -> Path:
    draw = random.Random(0)
    noises = [draw.randbytes(32 * 24 * 3) for _ in range(size.files)]
    for label in range(2):
        (folder / f"class{label}").mkdir(exist_ok=True)

    def write(number: int) -> None:
        noise = Image.frombytes("RGB", (32, 24), noises[number]).resize(size.pixels, Image.Resampling.BICUBIC)
        noise.save(folder / f"class{number % 2}" / f"{number}.jpg", quality=90)

    with ThreadPoolExecutor() as pool:
        list(pool.map(write, range(size.files)))
    return folder


def trainer(script: Script, device: str) -> Callable[[Any], None]:
    """Return what the script does with a batch, warmed up."""
    torch.manual_seed(0)
    on_gpu = device.startswith("cuda")
    layout = torch.channels_last
    net = script.network().to(device)
    if on_gpu:
        net = net.to(memory_format=layout)  # type: ignore[call-overload]  # missing in torch's stub
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step(batch: Any) -> None:
        inputs, targets = (part.to(device, non_blocking=True) for part in batch)
        if on_gpu and inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=layout)
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=on_gpu):
            loss = nn.functional.cross_entropy(net(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
        optimizer.step()

    samples = torch.utils.data.default_collate([script.data[0]] * script.batch)
    for _ in range(_WARM_UP):
        step(samples)
    synchronize()
    return step


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def say(text: str) -> None:
    """Progress, on standard error."""
    print(f"  {text}", file=sys.stderr, flush=True)


def tune(script: Script, step: Callable[[Any], None]) -> tuple[Tuning, float, int]:
    """Train until tuning has settled or has had its minute; as `unstarve tune` then concludes."""
    loader = script.loader(script.own)
    if script.sanity:
        with torch.no_grad():
            for _ in itertools.islice(loader, 2):
                pass
    begun, steps = time.perf_counter(), 0

    def show(now: Tuning) -> None:
        last = next((one for one in reversed(now.trials) if one.kind == "measured"), None)
        if last is not None and not now.settled:
            waits = "" if last.wait_share is None else f", waiting {last.wait_share:.0%}"
            where = f"{time.perf_counter() - begun:5.1f} s, step {steps:>4}"
            say(f"tuning {where}: {last.samples_per_s:8.0f} {describe(last.settings)}{waits}")

    tuner = tuner_for(loader, {"images": True, "parts": True, "on_change": show})
    while True:
        for batch in tuner.iterate(loader):
            step(batch)
            steps += 1
            spent_s = time.perf_counter() - begun
            if not tuner.is_searching or spent_s > _TUNING_S:
                return so_far(tuner.tuning), spent_s, steps


def rate(
    script: Script, step: Callable[[Any], None], settings: LoaderSettings, most_s: float, best: float
) -> tuple[float, bool]:
    """Samples per second of a whole epoch, and whether it was measured to the end: see above.

    `best`: the rate of the best setting so far.
    """
    loader = script.loader(LoaderSettings(settings.num_workers, settings.prefetch_factor))
    source = kept(loader) if settings.part == CACHED else loader
    begun = time.perf_counter()
    stream, seeds = begin_stream(loader, None)
    crew = make_crew(source, stream, settings, next(seeds), ring=False)
    taken_s: list[float] = []
    try:
        for batch in crew:
            step(batch)
            taken_s.append(time.perf_counter() - begun)
            if taken_s[-1] > most_s / 2 and len(taken_s) < len(loader):
                now = script.batch / epoch_step_s(taken_s, len(loader), settings)
                if now < _HOPELESS * best:
                    return now, False
                if taken_s[-1] > most_s:
                    return now, True
        synchronize()
        return script.batch * len(taken_s) / (time.perf_counter() - begun), True
    finally:
        crew.close()
        synchronize()


def kept(loader: DataLoader[Any]) -> CachedLoader:
    """The loader with its samples in memory: every epoch but the first counts."""
    samples = try_cache(loader)
    if isinstance(samples, str):
        raise ValueError(samples)
    for number in range(len(samples)):
        samples[number]
    return CachedLoader(loader, samples)


def epoch_step_s(taken_s: Sequence[float], length: int, settings: LoaderSettings) -> float:
    """Time per step of an epoch of `length`, from its start and the whole rounds of workers after that."""
    rounds = (len(taken_s) - 1) // max(settings.num_workers, 1) * max(settings.num_workers, 1)
    steps = rounds or len(taken_s) - 1
    steady_s = (taken_s[steps] - taken_s[0]) / steps if steps else taken_s[0]
    return (taken_s[0] + steady_s * (length - 1)) / length


def grid(script: Script, tuning: Tuning, cores: int) -> list[LoaderSettings]:
    """What the sweep tries, the most promising settings first."""
    counts = sorted({1, 2, 4, 8, 16, cores, tuning.chosen.num_workers} - {0}, reverse=True)
    counts = [one for one in counts if one <= max(cores, 16)]
    found = [LoaderSettings(n, 2, part) for part in (RING, "") for n in counts]
    if not isinstance(script.data, (Text, TensorDataset)):
        parts = [*([GPU_IMAGES] if torch.cuda.is_available() else []), IMAGES]
        found = [*(LoaderSettings(4, depth, part) for part in parts for depth in (2, 8)), *found]
    if isinstance(script.data, Text):
        found = [LoaderSettings(0, part=CACHED), LoaderSettings(4, 2, CACHED), *found]
    return list(dict.fromkeys([tuning.chosen, script.own, FOUR, *found, NONE]))


def sweep(
    script: Script,
    step: Callable[[Any], None],
    settings: Sequence[LoaderSettings],
    seconds: float,
    until: float,
) -> dict[LoaderSettings, float]:
    """Samples per second of each setting that there was time for; of the first three in any case."""
    swept: dict[LoaderSettings, float] = {}
    for number, one in enumerate(settings):
        if number > 2 and time.perf_counter() > until:
            break
        begun = time.perf_counter()
        try:
            best = max(swept.values(), default=0.0) if number > 2 else 0.0
            swept[one], to_the_end = rate(script, step, one, seconds, best)
        except Exception as error:  # this loader cannot have that part, or there is no memory for it
            say(f"sweep {describe(one)}: {error}")
            continue
        gave_up = "" if to_the_end else ", given up"
        say(f"sweep {time.perf_counter() - begun:4.1f} s: {swept[one]:8.0f} {describe(one)}{gave_up}")
    return swept


def judge(script: Script, options: argparse.Namespace) -> None:
    """Print a line."""
    say(script.name)
    begun = time.perf_counter()
    step = trainer(script, options.device)
    tuning, took_s, steps = tune(script, step)
    settings = grid(script, tuning, len(os.sched_getaffinity(0)))
    swept = sweep(script, step, settings, options.seconds, begun + options.budget)
    best = max(swept, key=swept.__getitem__)
    chosen = swept.get(tuning.chosen, float("nan"))
    left = len(settings) - len(swept)
    print(
        f"{script.name:<32}{brief(script.own):>6}{brief(tuning.chosen):>8}{brief(best):>8}"
        f"{chosen:>9.0f}{chosen / swept[best]:>8.2f}{chosen / swept[script.own]:>8.2f}"
        f"{chosen / swept[FOUR]:>10.2f}{took_s:>9.1f}{steps:>7}  "
        + ("settled" if tuning.settled else tuning.reason)
        + (f"; {left} settings not measured" if left else ""),
        flush=True,
    )
    if options.verbose:
        print(explain(tuning), flush=True)


def brief(settings: LoaderSettings) -> str:
    mark = {IMAGES: "*", GPU_IMAGES: "¤", RING: "°", CACHED: "†"}.get(settings.part, "")
    return f"{settings.num_workers}{mark}×{settings.prefetch_factor or 0}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="small images and networks")
    parser.add_argument(
        "--scripts", nargs="+", metavar="TEXT", default=[""], help="scripts whose name contains one of these"
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="for one measurement of the sweep")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds for a script, tuning included")
    parser.add_argument("--verbose", action="store_true", help="also print what the tuner says")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # as `unstarve tune` does
    size = SMALL if options.small else LARGE
    name = torch.cuda.get_device_name() if options.device.startswith("cuda") else options.device
    print(f"{name}, {len(os.sched_getaffinity(0))} cores, torch {torch.__version__}; workers × prefetch,")
    print("* our reading of images, ¤ decoded on the GPU, ° our hand-off, † samples kept in memory\n")
    print(
        "script                             own   tuned    best     /s  ÷ best   ÷ own ÷ 4 stock  took, s"
        "  steps"
    )
    with tempfile.TemporaryDirectory() as folder:
        for script in scripts(size, Path(folder)):
            if any(text in script.name for text in options.scripts):
                judge(script, options)


if __name__ == "__main__":
    main()
