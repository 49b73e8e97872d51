"""One small script per piece of advice: it plants the cause, and the advice with this id must be its answer.

To add a case, list it under the id of the advice: the dataset, the arguments of its loader, and those of
``fit(loader, …)``, all as a script would write them with the names of planted.py. Two ids joined by ``+``
stand for a pair. Where advice is a direction and not code or a command, `then` says what a person would make
of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_SCRIPT = """from planted import *
{before}
if __name__ == "__main__":
    dataset = {dataset}
    loader = DataLoader(dataset, {loader})
    fit(loader, {fit})
"""


@dataclass(frozen=True)
class Case:
    """A script, and what it needs."""

    dataset: str
    loader: str
    """Arguments after the dataset."""
    fit: str
    """Arguments after the loader."""
    before: str = ""
    """Lines before the training: a class, an import."""
    then: dict[str, str] = dataclasses.field(default_factory=dict)
    """The fields that a person would change, where the advice cannot be pasted."""
    cores: int = 1
    gpu: bool = False
    quick: bool = False
    prepare: Callable[[Path], None] | None = None
    """Called once with the working folder, to put data there."""

    @property
    def script(self) -> str:
        return _SCRIPT.format(before=self.before, dataset=self.dataset, loader=self.loader, fit=self.fit)

    @property
    def followed(self) -> str:
        """The script after the change, if the advice cannot be pasted; otherwise empty."""
        return dataclasses.replace(self, then={}, **self.then).script if self.then else ""


def images(folder: Path) -> None:
    """A folder of photographs, as torchvision's ``ImageFolder`` reads it."""
    import numpy as np
    from PIL import Image

    from unstarve.benchmark.bench_data import drawn

    random = np.random.default_rng(0)
    for number in range(96):
        path = folder / "images" / f"{number % 4}" / f"{number:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(drawn(random, 375, 500)).save(path, quality=90)


def tensors(folder: Path) -> None:
    """A folder of one small tensor per file."""
    import torch

    (folder / "samples").mkdir()
    for number in range(400):
        torch.save(torch.full((3, 64), float(number)), folder / "samples" / f"{number:04}.pt")


def rows(folder: Path) -> None:
    """An array of 10 MB, of which a sample is one row."""
    import numpy as np

    np.save(folder / "rows.npy", np.zeros((800, 3000), np.float32))


_IMAGES = """from unstarve.benchmark.optional_packages import torchvision

vision = torchvision()
T = vision.transforms
STEPS = [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5] * 3, [0.25] * 3)]
"""
_SAVED = """
class Saved(Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.pt"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return torch.load(self.paths[index])
"""
_WHOLE = """
class Rows(Dataset):
    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 800

    def __getitem__(self, index):
        return np.load(self.path)[index]
"""
_SLOW_FILES = """
def slow_load(*args, load=torch.load, **kwargs):
    time.sleep(0.002)  # a file system on the network
    return load(*args, **kwargs)

torch.load = slow_load
"""
_COLLATE = """
def collate(samples):
    return torch.tensor([[float(value) for value in sample] for sample in samples])
"""
_WEIGHTED = """
class Weighted:
    def __len__(self):
        return 400

    def __iter__(self):
        weights = torch.ones(100_000)
        return (int(torch.multinomial(weights, 1)) for _ in range(400))
"""
_IN_BULK = """
class Weighted:
    def __len__(self):
        return 400

    def __iter__(self):
        return iter(torch.multinomial(torch.ones(100_000), 400).tolist())
"""

CASES: dict[str, Case] = {
    # Workers and cores.
    "more-workers": Case(
        "Latency(2000, ms=5)", "batch_size=8, num_workers=1", "accelerator(ms=4)", quick=True
    ),
    "use-workers": Case(
        "Computed(1200, units=24)", "batch_size=8", "accelerator(ms=15)", cores=2, quick=True
    ),
    "fill-cores": Case(
        "Computed(2000, units=24)", "batch_size=8, num_workers=1", "accelerator(ms=4)", cores=2, quick=True
    ),
    "fewer-workers": Case(
        "Computed(1600, units=20 * CORES)", "batch_size=8, num_workers=5 * CORES", "model(units=1)", cores=2
    ),
    "cheaper-work": Case(
        "Computed(1600, units=24)",
        "batch_size=8, num_workers=CORES, persistent_workers=True",
        "accelerator(ms=2)",
        then={"dataset": "Computed(1600, units=12)"},
    ),
    "fill-cores+persistent-workers": Case(
        "Computed(320, units=24)", "batch_size=8, num_workers=1", "accelerator(ms=4), epochs=6", cores=4
    ),
    # Samples.
    "decode-crop": Case(
        'vision.datasets.ImageFolder("images", T.Compose(STEPS))',
        "batch_size=16, shuffle=True, num_workers=2, persistent_workers=True",
        "accelerator(ms=5), epochs=12",
        _IMAGES,
        prepare=images,
    ),
    "decode-gpu": Case(
        'vision.datasets.ImageFolder("images", T.Compose(STEPS))',
        "batch_size=16, shuffle=True, num_workers=2, persistent_workers=True",
        "lambda batch: batch[0].cuda(non_blocking=True).mean().item(), epochs=12",
        _IMAGES,
        prepare=images,
        gpu=True,
    ),
    "keep-decoded": Case(
        'vision.datasets.ImageFolder("images", T.Compose(STEPS))',
        "batch_size=16, shuffle=True",
        "accelerator(ms=5), epochs=8, warm_epochs=1",
        _IMAGES,
        prepare=images,
    ),
    "keep-in-memory": Case(
        "Computed(400, units=24)",
        "batch_size=8, shuffle=True",
        "accelerator(ms=4), epochs=4, warm_epochs=1",
    ),
    "rows-in-memory": Case(
        "TensorDataset(torch.randn(20_000, 64), torch.arange(20_000))",
        "batch_size=64, shuffle=True",
        "accelerator(ms=0.2), epochs=6",
    ),
    "fetch-ahead": Case("Latency(1200, ms=5)", "batch_size=8, shuffle=True", "accelerator(ms=10)"),
    "more-reads": Case(
        'Cold("blocks.bin", 1600, blocks=8)', "batch_size=8, num_workers=1", "accelerator(ms=1)"
    ),
    "read-less": Case(
        'Rows("rows.npy")',
        "batch_size=4, shuffle=True",
        "accelerator(ms=5), epochs=1",
        _WHOLE,
        then={"before": _WHOLE.replace("(self.path)[", '(self.path, mmap_mode="r")[')},
        prepare=rows,
    ),
    "tensor-files": Case(
        'Saved("samples")',
        "batch_size=32, shuffle=True",
        "accelerator(ms=1), epochs=20",
        _SAVED,
        prepare=tensors,
    ),
    "pack-files": Case(
        'Saved("samples")',
        "batch_size=8, shuffle=True",
        "accelerator(ms=5), epochs=3",
        _SLOW_FILES + _SAVED,
        prepare=tensors,
    ),
    # Delivery.
    "no-workers": Case(
        "Large(6000, floats=200_000)", "batch_size=8, num_workers=1", "accelerator(ms=1)", quick=True
    ),
    "ring-engine": Case("Fields(3200, fields=60)", "batch_size=8, num_workers=2", "accelerator(ms=1)"),
    "cheaper-collate": Case(
        "Items(20_000)",
        "batch_size=32, num_workers=1, collate_fn=collate",
        "accelerator(ms=1)",
        _COLLATE,
        then={"before": _COLLATE.replace("in samples]", "in samples[:16]]")},
    ),
    "cheaper-sampler": Case(
        "Items(100_000)",
        "batch_size=8, num_workers=1, sampler=Weighted()",
        "accelerator(ms=1), epochs=3",
        _WEIGHTED,
        then={"before": _IN_BULK},
    ),
    "keep-large-memory": Case("Large(4000, floats=1 << 18)", "batch_size=64", "accelerator(ms=2)"),
    "no-pinning": Case(
        "Fields(3200, fields=100)",
        "batch_size=8, num_workers=2, pin_memory=True",
        "accelerator(ms=1)",
        gpu=True,
    ),
    "pin-memory": Case(
        "Large(6000, floats=500_000)",
        "batch_size=16, num_workers=2",
        "lambda batch: batch.cuda(non_blocking=True).sum().item()",
        gpu=True,
    ),
    "to-device": Case(
        "Large(6000, floats=500_000)",
        "batch_size=16, num_workers=2, pin_memory=True",
        "lambda batch: batch.cuda(non_blocking=True).sum().item()",
        "import unstarve",
        gpu=True,
        then={
            "loader": "batch_size=16, num_workers=2, pin_memory=True)\n"
            '    loader = unstarve.to_device(loader, "cuda"'
        },
    ),
    # Timing.
    "persistent-workers": Case(
        "Latency(160, ms=1)", "batch_size=8, num_workers=2", "accelerator(ms=8), epochs=16", quick=True
    ),
    "no-workers-to-start": Case(
        "TensorDataset(torch.randn(640, 64))",
        "batch_size=32, num_workers=2",
        "accelerator(ms=2), epochs=20",
    ),
    "any-order": Case(
        "Tail(3200, ms=1, late_ms=150, every=100)",
        "batch_size=8, num_workers=4",
        "accelerator(ms=6)",
        quick=True,
    ),
    "deeper-prefetch": Case(
        "Tail(3200, ms=1, late_ms=80, every=60)", "batch_size=8, num_workers=4", "accelerator(ms=10)"
    ),
    "level-samples": Case(
        "Tail(3200, ms=1, late_ms=150, every=100)",
        "batch_size=8, num_workers=4",
        "accelerator(ms=6)",
        then={"dataset": "Tail(3200, ms=1, late_ms=75, every=100)"},
    ),
}
