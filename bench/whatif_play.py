"""Train one workload of the what-if bench with given loader settings, as a user's script would.

    python bench/whatif_play.py NAME '{"num_workers": 2}' SECONDS

It works in the current folder and trains until SECONDS have passed after warm-up: the first steps, or where
epochs are short, the first epoch. Then it trains whole epochs, so that the start of an epoch counts as often
as it does in a long training. The last line of the output is the truth, measured by the script itself.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset
from zoo.collate import pad
from zoo.data import Fixed, Items, Slow, SlowCollate, Stream
from zoo.disk import FILE, SIZE, ColdReads, write_file
from zoo.handoff import Fields
from zoo.order import Tail
from zoo.truth import MARK, WARMUP_STEPS, Truth
from zoo.work import Device, Model, augment, decompress, parse

from unstarve.benchmark.bench_data import save_image
from unstarve.benchmark.optional_packages import torchvision

ENDLESS = 10**6
FEWEST_STEPS = 30
SHORT_EPOCH = 200
"""Steps."""


@dataclass(frozen=True)
class Repeated:
    """A sample with a fixed amount of work, however fast the core is at the moment."""

    chunk: Callable[[], object]
    times: int

    def __call__(self, index: int) -> torch.Tensor:
        for _ in range(self.times):
            self.chunk()
        return torch.full((64,), float(index))


@dataclass(frozen=True)
class Image:
    """A sample that is a new array of floats."""

    floats: int

    def __call__(self, index: int) -> torch.Tensor:
        return torch.full((self.floats,), float(index))


@dataclass(frozen=True)
class Workload:
    """A training whose loader settings are open."""

    dataset: Callable[[], Any]
    step: Callable[[], Callable[[Any], None]]
    batch_size: int | None = 8
    options: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""


class Gpu:
    """A training step that keeps a real accelerator busy for `ms`, and optionally waits for its result."""

    def __init__(self, ms: float, *, waits: bool = True) -> None:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(2):  # the first one wakes the device up
            begin.record()
            torch.cuda._sleep(10**7)
            end.record()
            torch.cuda.synchronize()
        self._cycles = int(ms / begin.elapsed_time(end) * 10**7)
        self._waits = waits

    def __call__(self, batch: Any) -> None:
        parts = list(batch.values()) if isinstance(batch, dict) else batch
        for part in parts if isinstance(parts, (list, tuple)) else [parts]:
            part.to("cuda", non_blocking=True)
        torch.cuda._sleep(self._cycles)
        if self._waits:
            torch.cuda.synchronize()


def accelerator(ms: float, *, waits: bool = True) -> Callable[[Any], None]:
    """Use a real device if there is one; otherwise the step sleeps."""
    return Gpu(ms, waits=waits) if torch.cuda.is_available() else Device(ms)


def _cold(load: Any) -> Any:
    write_file(FILE, SIZE)
    return Items(ENDLESS, load)


def _direct(block: int, blocks: int) -> Callable[[], Any]:
    return lambda: _cold(ColdReads(block, blocks=blocks, flags=os.O_RDONLY | os.O_DIRECT))


def _rows() -> TensorDataset:
    rows = torch.randn(64 * 4000, 100)
    return TensorDataset(rows, rows[:, 0])


DATA = Path(os.environ.get("WHATIF_DATA", "."))
"""Where trainings of one bench find the same images."""
ON_GPU = torch.cuda.is_available()
IMAGES = 128 if ON_GPU else 16
"""In a batch."""


def images() -> Any:
    """JPEGs with the transforms of most image scripts; epochs of 25 steps."""
    vision = torchvision()
    root, count = DATA / "images", 768 if ON_GPU else 96
    if not root.exists():
        generator = np.random.default_rng(0)
        for number in range(count):
            save_image(root, number, generator)
    steps = vision.transforms
    decode = steps.Compose([
        steps.RandomResizedCrop(224), steps.RandomHorizontalFlip(), steps.ToTensor(),
        steps.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ])  # fmt: skip
    folder = vision.datasets.ImageFolder(str(root), decode)
    return Subset(folder, [index % len(folder) for index in range(25 * IMAGES)])


class Words(Dataset[Any]):
    """Texts that are split and looked up in Python, as a tokenizer without native code does it."""

    def __init__(self) -> None:
        words = "".join(chr(97 + number % 26) for number in range(4001))
        self.texts = [" ".join(words[k : k + 3 + k % 5] for k in range(n, n + 2000)) for n in range(64)]
        self.known: dict[str, int] = {}

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> torch.Tensor:
        found = re.findall(r"[a-z]+", self.texts[index % len(self.texts)])
        ids = [self.known.setdefault(word, len(self.known) % 30_000) for word in found]
        return torch.tensor(ids[:512])


class Network:
    """A real step: forward, backward and update of a small network, on the GPU where there is one."""

    def __init__(self, body: torch.nn.Module, of: Callable[[Any], torch.Tensor]) -> None:
        self._device = torch.device("cuda" if ON_GPU else "cpu")
        if not ON_GPU:
            torch.set_num_threads(1)
        self._body, self._of = body.to(self._device), of
        self._update = torch.optim.SGD(self._body.parameters(), 1e-3)

    def __call__(self, batch: Any) -> None:
        inputs = self._of(batch).to(self._device, non_blocking=True)
        with torch.autocast(self._device.type, torch.bfloat16, enabled=ON_GPU):
            loss = self._body(inputs).float().square().mean()
        loss.backward()
        self._update.step()
        self._update.zero_grad()


def convolutions() -> Network:
    if ON_GPU:
        return Network(torchvision().models.resnet50(), lambda batch: batch[0])
    layers = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 7, stride=8), torch.nn.ReLU(), torch.nn.Flatten())
    return Network(layers, lambda batch: batch[0])


def encoder() -> Network:
    width, depth = (256, 2) if ON_GPU else (32, 1)  # small: loading is to be the limit, up to many workers
    layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
    body = torch.nn.Sequential(
        torch.nn.Embedding(30_000, width),
        torch.nn.TransformerEncoder(layer, depth, enable_nested_tensor=False),
    )
    return Network(body, lambda batch: batch if ON_GPU else batch[:, :64])


DEVICE_WORKLOADS: dict[str, Workload] = {
    "images": Workload(
        images,
        convolutions,
        IMAGES,
        {"pin_memory": ON_GPU, "shuffle": True, "drop_last": True},
    ),
    "text": Workload(Words, encoder, 128 if ON_GPU else 8, {"pin_memory": ON_GPU}),
}
"""Scripts as people write them, for a machine with a GPU and many cores."""

WORKLOADS: dict[str, Workload] = {
    "cpu-python": Workload(lambda: Items(ENDLESS, Repeated(parse, 20)), lambda: Model(8)),
    "cpu-numpy": Workload(lambda: Items(ENDLESS, Repeated(augment, 40)), lambda: accelerator(12)),
    "cpu-zlib-stream": Workload(lambda: Stream(ENDLESS, Repeated(decompress, 20)), lambda: Model(10)),
    "latency": Workload(lambda: Items(ENDLESS, Slow(sleep_ms=5)), lambda: Model(8)),
    "latency-device": Workload(lambda: Items(ENDLESS, Slow(sleep_ms=8)), lambda: accelerator(6)),
    "mixed": Workload(
        lambda: Items(ENDLESS, Slow(sleep_ms=4, cpu_ms=2, chunk=augment)), lambda: accelerator(8)
    ),
    "mixed-busy-step": Workload(lambda: Items(ENDLESS, Slow(sleep_ms=4, cpu_ms=2)), lambda: Model(12)),
    "disk-direct": Workload(_direct(1 << 17, 16), lambda: accelerator(4)),
    "disk-large": Workload(_direct(1 << 21, 4), lambda: accelerator(4)),
    "tail": Workload(lambda: Items(ENDLESS, Tail(every=20, late_ms=160)), lambda: Device(10), batch_size=2),
    "tiny": Workload(_rows, lambda: Model(2), batch_size=64),
    "handoff-bytes": Workload(
        lambda: Items(ENDLESS, Image(640_000)), lambda: accelerator(8)),
    "handoff-tensors": Workload(lambda: Items(ENDLESS, Fields(60)), lambda: accelerator(4), batch_size=None),
    "collate": Workload(
        lambda: Items(ENDLESS, Fixed()), lambda: accelerator(10), options={"collate_fn": SlowCollate(30)}
    ),
    "collate-torch": Workload(lambda: Items(ENDLESS, Fixed()), lambda: Model(6), options={"collate_fn": pad}),
    "async": Workload(
        lambda: Items(ENDLESS, Slow(sleep_ms=2, cpu_ms=1)), lambda: accelerator(9, waits=False)
    ),
    "pinned": Workload(
        lambda: Items(ENDLESS, Image(300_000)), lambda: accelerator(6), options={"pin_memory": True}
    ),
    "compute": Workload(lambda: Items(ENDLESS, Slow(cpu_ms=0.5, chunk=augment)), lambda: Model(35)),
    "epochs": Workload(lambda: Items(120, Slow(cpu_ms=1.0)), lambda: Model(6)),
}  # fmt: skip


def play(name: str, change: Mapping[str, Any], seconds: float) -> str:
    """Train until the time is up, and return the line with the truth."""
    workload = (WORKLOADS | DEVICE_WORKLOADS)[name]
    options = {"batch_size": workload.batch_size, **workload.options, **change}
    loader: DataLoader[Any] = DataLoader(workload.dataset(), **options)
    step = workload.step()
    if isinstance(loader.dataset, Sized) and len(loader) <= SHORT_EPOCH:
        return whole_epochs(loader, step, seconds)
    truth, until = Truth(), float("inf")
    for steps, batch in enumerate(truth.over(loader), 1):
        step(batch)
        if steps == WARMUP_STEPS:
            until = time.perf_counter() + seconds
        if time.perf_counter() >= until and steps >= FEWEST_STEPS:
            break
    return truth.line()


def whole_epochs(loader: DataLoader[Any], step: Callable[[Any], None], seconds: float) -> str:
    """Train an epoch for warm-up and then as many as begin before the time is up."""
    for batch in loader:
        step(batch)
    steps, begin = 0, time.perf_counter()
    while not steps or time.perf_counter() < begin + seconds:
        for batch in loader:
            step(batch)
            steps += 1
    return MARK + json.dumps({"steps": steps, "seconds": time.perf_counter() - begin})


if __name__ == "__main__":
    print(play(sys.argv[1], json.loads(sys.argv[2]), float(sys.argv[3])), flush=True)
