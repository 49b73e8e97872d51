"""Warnings name the same file and line with and without unstarve, and filters find them there."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

import unstarve

TRAIN = """
import logging
import sys
import warnings
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

class Longer(IterableDataset):
    def __len__(self):
        return 2
    def __iter__(self):
        return iter(torch.arange(4.0))

class Noisy(Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        for level in range(1, 8):
            warnings.warn(f"sample {level}", stacklevel=level)
        logging.warning("sample", stacklevel=6)
        return torch.tensor(index)

class Order(Sampler):
    def __iter__(self):
        for level in range(1, 4):
            warnings.warn(f"order {level}", stacklevel=level)
        return iter(range(2))

def collate(samples):
    for level in range(1, 6):
        warnings.warn(f"collate {level}", stacklevel=level)
    return torch.stack(samples)

logging.basicConfig(format="%(pathname)s:%(lineno)d: LogWarning: %(message)s")
for workers in (0, 1):
    longer = DataLoader(Longer(), batch_size=None, num_workers=workers, pin_memory=True)
    len(longer)
    for batch in longer:
        pass
many = DataLoader(torch.arange(4.0), num_workers=500)
noisy = DataLoader(Noisy(), sampler=Order(), collate_fn=collate)
for batch in noisy:
    pass
"""

OURS = """
import torch
from torch.utils.data import IterableDataset
from unstarve import DataLoader

class Longer(IterableDataset):
    def __len__(self):
        return 2
    def __iter__(self):
        return iter(torch.arange(4.0))

for workers in (0, 1):
    longer = DataLoader(Longer(), batch_size=None, num_workers=workers, pin_memory=True)
    len(longer)
    for batch in longer:
        pass
many = DataLoader(torch.arange(4.0), num_workers=500, pin_memory=True)
for batch in many:
    break
for batch in DataLoader(torch.arange(4.0), shuffle=True, engine="gather", pin_memory=True):
    break
"""


def warned(text: str) -> list[tuple[str, int, str]]:
    """File, line and first words of every warning, in order."""
    found = re.findall(r"^(\S+):(\d+): \w*Warning: (.{1,20})", text, re.MULTILINE)
    return [(file, int(line), words) for file, line, words in found]


@pytest.mark.parametrize(
    "verb",
    [("run", "-q", "-f", "-o", "run.unstarve"), ("tune",)],
    ids=["run", "tune"],
)
def test_every_warning_names_the_line_that_it_names_without_unstarve(
    project: Any, verb: tuple[str, ...]
) -> None:
    project.write("train.py", TRAIN)
    plain = warned(project.python("-W", "always", "train.py").stderr)
    watched = project.unstarve(*verb, sys.executable, "-W", "always", "train.py")
    assert {"Length of IterableDa", "This DataLoader will", "'pin_memory' argumen"} <= {
        words for _, _, words in plain
    }
    assert warned(watched.stderr) == plain


def test_an_error_by_module_and_line_ends_the_training_at_the_same_place(project: Any) -> None:
    script = project.write("train.py", TRAIN)
    line = next(n for n, text in enumerate(script.read_text().splitlines(), 1) if "in longer" in text)
    only_here = f"error:Length of IterableDataset:UserWarning:__main__:{line}"
    plain = project.python("-W", only_here, "train.py")
    watched = project.unstarve("run", "-q", "-o", "run.unstarve", sys.executable, "-W", only_here, "train.py")
    end = "was reported to be 2(when accessing len(dataloader)), but 3 samples have been fetched."
    assert [done.stderr.strip().endswith(end) for done in (plain, watched)] == [True, True]
    assert watched.returncode == plain.returncode == 1


def test_no_warning_points_into_our_own_loader(project: Any) -> None:
    project.write("train.py", OURS)
    found = warned(project.python("-W", "always", "train.py").stderr)
    assert {"Length of IterableDa", "This DataLoader will", "'pin_memory' argumen"} <= {
        words for _, _, words in found
    }
    assert not [one for one in found if one[0].startswith(str(Path(unstarve.__file__).parent))]
    assert {file for file, _, words in found if words.startswith("Length")} == {
        str(project.folder / "train.py")
    }


def test_tuning_asks_for_no_length_that_torch_would_check(project: Any) -> None:
    project.write("train.py", OURS.partition("many =")[0].replace("unstarve", "torch.utils.data"))
    asked = project.unstarve("tune", sys.executable, "-W", "always", "train.py")
    project.write("train.py", (project.folder / "train.py").read_text().replace("len(longer)", ""))
    not_asked = project.unstarve("tune", sys.executable, "-W", "always", "train.py")
    counts = ["Length of" in done.stderr for done in (asked, not_asked)]
    assert counts == [True, False]
