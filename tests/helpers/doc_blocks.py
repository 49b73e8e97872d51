"""The code blocks of README and docs, and what they may use without defining it."""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

import unstarve

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]+) -->\n\s*)?"
    r"^(?P<indent> *)```(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str
    not_run: str | None
    """Why it is only compiled, as the comment in front of it says."""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text()
    return [
        Block(page, text[: one.start("text")].count("\n"), one["language"], one["text"], one["reason"])
        for one in _BLOCK.finditer(text)
    ]


def reader_scope(folder: Path) -> dict[str, Any]:
    """What a reader has by the time they try an example: data, a model, a loop; files lie in `folder`."""
    for name in ("cat", "dog"):
        (folder / "train" / name).mkdir(parents=True)
        for number in range(8):
            Image.new("RGB", (40, 30), (number, 90, 40)).save(folder / "train" / name / f"{number}.jpg")
    recorded = gzip.decompress((ROOT / "tests" / "data" / "version_1.unstarve.gz").read_bytes())
    for name in ("epoch.unstarve", "run.unstarve"):
        (folder / name).write_bytes(recorded)
    (folder / "data").mkdir()
    for number in range(64):
        torch.save(torch.full((4,), float(number)), folder / "data" / f"{number}.pt")
    images, labels = torch.randn(64, 8), torch.arange(64) % 4
    dataset = TensorDataset(images, labels)
    with unstarve.PackedWriter(folder / "train.packed") as writer:
        for number in range(64):
            writer.append(dataset[number])
    model = torch.nn.Linear(8, 4)

    def train(*given: Any, **_: Any) -> None:
        if len(given) == 2:
            for _batch in given[1]:
                pass

    return {
        "__name__": "example",
        "augment": lambda sample: sample,
        "rows": images,
        "dataset": dataset,
        "DataLoader": DataLoader,
        "epochs": 1,
        "fast": torch.square,
        "get_batch": lambda: images[:8],
        "images": images,
        "labels": labels,
        "loader": unstarve.DataLoader(dataset, batch_size=8, shuffle=True),
        "make_loader": lambda: DataLoader(dataset, batch_size=8),
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), 0.1),
        "paths": sorted((folder / "data").glob("*.pt")),
        "slow": lambda rows: torch.stack([row * row for row in rows]),
        "stream": (images[at : at + 8] for at in range(0, 64, 8)),
        "torch": torch,
        "train": train,
        "unstarve": unstarve,
    }
