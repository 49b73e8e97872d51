"""One small script per piece of advice: it plants the cause, and the advice with this id must be its answer.

To add a case, write a script that makes one loader with ``loader = DataLoader(…)`` and ends with ``fit(…)``,
and list it under the id of the advice; two ids joined by ``+`` stand for a pair. Where advice is a direction
and not code for the loader's call, a second script says what a person would make of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Case:
    """A script and what it needs."""

    script: str
    followed: str = ""
    """The script after the change, where the advice cannot be pasted."""
    cores: int = 1
    gpu: bool = False
    quick: bool = False
    prepare: Callable[[Path], None] | None = None
    """Called once with the working folder, to put data there."""


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


CASES: dict[str, Case] = {
    "more-workers": Case(
        """
from planted import *

if __name__ == "__main__":
    dataset = Latency(2000, ms=5)
    loader = DataLoader(dataset, batch_size=8, num_workers=1)
    fit(loader, accelerator(ms=4))
""",
        quick=True,
    ),
    "use-workers": Case(
        """
from planted import *

if __name__ == "__main__":
    dataset = Computed(1200, units=24)
    loader = DataLoader(dataset, batch_size=8)
    fit(loader, accelerator(ms=15))
""",
        cores=2,
        quick=True,
    ),
    "fill-cores": Case(
        """
from planted import *

if __name__ == "__main__":
    dataset = Computed(2000, units=24)
    loader = DataLoader(dataset, batch_size=8, num_workers=1)
    fit(loader, accelerator(ms=4))
""",
        cores=2,
        quick=True,
    ),
    "fewer-workers": Case(
        """
from planted import *

if __name__ == "__main__":
    dataset = Computed(2400, units=24)
    loader = DataLoader(dataset, batch_size=8, num_workers=5 * CORES)
    fit(loader, model(units=4))
""",
        cores=2,
    ),
    "more-reads": Case(
        """
from planted import *

if __name__ == "__main__":
    dataset = Cold("blocks.bin", 1600, blocks=8)
    loader = DataLoader(dataset, batch_size=8, num_workers=1)
    fit(loader, accelerator(ms=1))
""",
    ),
    "no-workers": Case(
        """
from planted import *

if __name__ == "__main__":
    dataset = Large(6000, floats=200_000)
    loader = DataLoader(dataset, batch_size=8, num_workers=1)
    fit(loader, accelerator(ms=1))
""",
        quick=True,
    ),
    "persistent-workers": Case(
        """
from planted import *

if __name__ == "__main__":
    dataset = Latency(160, ms=1)
    loader = DataLoader(dataset, batch_size=8, num_workers=2)
    fit(loader, accelerator(ms=8), epochs=16)
""",
        quick=True,
    ),
    "any-order": Case(
        """
from planted import *

if __name__ == "__main__":
    dataset = Tail(3200, ms=1, late_ms=150, every=100)
    loader = DataLoader(dataset, batch_size=8, num_workers=4)
    fit(loader, accelerator(ms=6))
""",
        quick=True,
    ),
    "deeper-prefetch": Case(
        """
from planted import *

if __name__ == "__main__":
    dataset = Tail(3200, ms=1, late_ms=80, every=60)
    loader = DataLoader(dataset, batch_size=8, num_workers=4)
    fit(loader, accelerator(ms=10))
""",
    ),
    "decode-crop": Case(
        """
from planted import *
from unstarve.benchmark.optional_packages import torchvision

if __name__ == "__main__":
    vision = torchvision()
    steps = [vision.transforms.RandomResizedCrop(224), vision.transforms.RandomHorizontalFlip(),
             vision.transforms.ToTensor(), vision.transforms.Normalize([0.5] * 3, [0.25] * 3)]
    dataset = vision.datasets.ImageFolder("images", vision.transforms.Compose(steps))
    loader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
    fit(loader, accelerator(ms=5), epochs=12)
""",
        prepare=images,
    ),
    "keep-in-memory": Case(
        """
from planted import *

if __name__ == "__main__":
    dataset = Computed(400, units=24)
    loader = DataLoader(dataset, batch_size=8, shuffle=True)
    fit(loader, accelerator(ms=4), epochs=4, warm_epochs=1)
""",
    ),
    "rows-in-memory": Case(
        """
from planted import *

if __name__ == "__main__":
    dataset = TensorDataset(torch.randn(20_000, 64), torch.arange(20_000))
    loader = DataLoader(dataset, batch_size=64, shuffle=True)
    fit(loader, accelerator(ms=0.2), epochs=6)
""",
    ),
    "fetch-ahead": Case(
        """
from planted import *

if __name__ == "__main__":
    dataset = Latency(1200, ms=5)
    loader = DataLoader(dataset, batch_size=8, shuffle=True)
    fit(loader, accelerator(ms=10))
""",
    ),
    "tensor-files": Case(
        """
from planted import *

class Saved(Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.pt"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return torch.load(self.paths[index])

if __name__ == "__main__":
    dataset = Saved("samples")
    loader = DataLoader(dataset, batch_size=32, shuffle=True)
    fit(loader, accelerator(ms=1), epochs=20)
""",
        prepare=tensors,
    ),
    "pack-files": Case(
        """
from planted import *

class Saved(Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.pt"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        time.sleep(0.002)  # a file system on the network
        return torch.load(self.paths[index])

if __name__ == "__main__":
    dataset = Saved("samples")
    loader = DataLoader(dataset, batch_size=8, shuffle=True)
    fit(loader, accelerator(ms=5), epochs=3)
""",
        prepare=tensors,
    ),
    "ring-engine": Case(
        """
from planted import *

if __name__ == "__main__":
    dataset = Fields(3200, fields=60)
    loader = DataLoader(dataset, batch_size=8, num_workers=2)
    fit(loader, accelerator(ms=1))
""",
    ),
    "no-workers-to-start": Case(
        """
from planted import *

if __name__ == "__main__":
    dataset = TensorDataset(torch.randn(640, 64))
    loader = DataLoader(dataset, batch_size=32, num_workers=2)
    fit(loader, accelerator(ms=2), epochs=20)
""",
    ),
    "keep-large-memory": Case(
        """
from planted import *

if __name__ == "__main__":
    dataset = Large(32 * 120, floats=1 << 18)
    loader = DataLoader(dataset, batch_size=64)
    fit(loader, accelerator(ms=2))
""",
    ),
    "no-pinning": Case(
        """
from planted import *

if __name__ == "__main__":
    dataset = Fields(3200, fields=100)
    loader = DataLoader(dataset, batch_size=8, num_workers=2, pin_memory=True)
    fit(loader, accelerator(ms=1))
""",
        gpu=True,
    ),
    "pin-memory": Case(
        """
from planted import *

if __name__ == "__main__":
    dataset = Large(6000, floats=500_000)
    loader = DataLoader(dataset, batch_size=16, num_workers=2)
    fit(loader, lambda batch: batch.cuda(non_blocking=True).sum().item())
""",
        gpu=True,
    ),
    "fill-cores+persistent-workers": Case(
        """
from planted import *

if __name__ == "__main__":
    dataset = Computed(320, units=24)
    loader = DataLoader(dataset, batch_size=8, num_workers=1)
    fit(loader, accelerator(ms=4), epochs=6)
""",
        cores=4,
    ),
    "cheaper-work": Case(
        """
from planted import *

if __name__ == "__main__":
    dataset = Computed(1600, units=24)
    loader = DataLoader(dataset, batch_size=8, num_workers=CORES, persistent_workers=True)
    fit(loader, accelerator(ms=2))
""",
        """
from planted import *

if __name__ == "__main__":
    dataset = Computed(1600, units=12)
    loader = DataLoader(dataset, batch_size=8, num_workers=CORES, persistent_workers=True)
    fit(loader, accelerator(ms=2))
""",
    ),
    "cheaper-collate": Case(
        """
from planted import *

def collate(samples):
    return torch.tensor([[float(value) for value in sample] for sample in samples])

if __name__ == "__main__":
    dataset = Items(20_000)
    loader = DataLoader(dataset, batch_size=32, num_workers=1, collate_fn=collate)
    fit(loader, accelerator(ms=1))
""",
        """
from planted import *

def collate(samples):
    return torch.tensor([[float(value) for value in sample] for sample in samples[:16]])

if __name__ == "__main__":
    dataset = Items(20_000)
    loader = DataLoader(dataset, batch_size=32, num_workers=1, collate_fn=collate)
    fit(loader, accelerator(ms=1))
""",
    ),
    "cheaper-sampler": Case(
        """
from planted import *

class Weighted:
    def __len__(self):
        return 400

    def __iter__(self):
        weights = torch.ones(100_000)
        for _ in range(400):
            yield int(torch.multinomial(weights, 1))

if __name__ == "__main__":
    dataset = Items(100_000)
    loader = DataLoader(dataset, batch_size=8, num_workers=1, sampler=Weighted())
    fit(loader, accelerator(ms=1), epochs=3)
""",
        """
from planted import *

class Weighted:
    def __len__(self):
        return 400

    def __iter__(self):
        weights = torch.ones(100_000)
        return iter(torch.multinomial(weights, 400).tolist())

if __name__ == "__main__":
    dataset = Items(100_000)
    loader = DataLoader(dataset, batch_size=8, num_workers=1, sampler=Weighted())
    fit(loader, accelerator(ms=1), epochs=3)
""",
    ),
    "level-samples": Case(
        """
from planted import *

if __name__ == "__main__":
    dataset = Tail(3200, ms=1, late_ms=150, every=100)
    loader = DataLoader(dataset, batch_size=8, num_workers=4)
    fit(loader, accelerator(ms=6))
""",
        """
from planted import *

if __name__ == "__main__":
    dataset = Tail(3200, ms=1, late_ms=75, every=100)
    loader = DataLoader(dataset, batch_size=8, num_workers=4)
    fit(loader, accelerator(ms=6))
""",
    ),
}
