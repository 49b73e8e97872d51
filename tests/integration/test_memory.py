"""Memory troubles in real trainings: each is found under its id, and healthy look-alikes are silent."""

from __future__ import annotations

import json
from typing import Any

import pytest

START = """
import os, random, sys, time
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from unstarve import api

def batches(loader, seconds=3):
    '''Train until every process was looked at often enough to tell, however busy the machine is.'''
    began, asked = time.monotonic(), 0
    while True:
        for batch in loader:
            yield batch
            time.sleep(0.01)
            passed = time.monotonic() - began
            if passed > seconds + asked:
                asked += 1
                looks = [len(process.memory.looks) for process in api.load_run("m.unstarve").processes]
                if min(looks) >= 14 or passed > 100:
                    return
"""

COPIED = """
class Paths(Dataset):
    def __init__(self):
        self.samples = [f"/data/train/class_{i % 1000:04}/image_{i:09}.jpg" for i in range(300_000)]
        self.began, self.read = time.monotonic(), 0

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        first, self.read = self.read, int((time.monotonic() - self.began) * 40_000)  # the same on any machine
        return torch.tensor([sum(len(path) for path in self.samples[first : self.read])])

train_set = Paths()
loader = DataLoader(train_set, batch_size=16, num_workers=2)
for _ in batches(loader, 4):
    pass
"""

PACKED = COPIED.replace("range(300_000)]", "range(300_000)]\n        self.samples = np.array(self.samples)")

KEPT = """
class Rows(Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return torch.full((500,), float(index)), index % 10

train_set = Rows()
loader = DataLoader(train_set, batch_size=32, num_workers=2)
labels = []
for x, y in batches(loader):
    labels.append(y)
"""

CLONED = KEPT.replace("labels.append(y)", "labels.append(y.clone())")

CACHED = """
class Cached(Dataset):
    def __init__(self):
        self.cache = {}

    def __len__(self):
        return 100

    def __getitem__(self, index):
        key = index, random.random()
        self.cache[key] = np.full(10_000, float(index))
        return torch.tensor(self.cache[key][:10])

train_set = Cached()
loader = DataLoader(train_set, batch_size=8, num_workers=2, persistent_workers=True)
for _ in batches(loader):
    pass
"""

FULL = CACHED.replace("key = index, random.random()", "key = index")

LEAKED = """
seen = []

class Leaky(Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        seen.append([index] * 10_000)  # the leak
        return torch.tensor([float(index)])

train_set = Leaky()
loader = DataLoader(train_set, batch_size=8, num_workers=2)
for _ in batches(loader):
    pass
"""

LET_GO = LEAKED.replace("seen.append([index] * 10_000)  # the leak", "seen[:] = [[index] * 10_000]")


def report_of(project: Any, source: str) -> dict[str, Any]:
    project.write("train.py", START + source)
    done = project.unstarve("run", "--memory", "-q", "-o", "m.unstarve", "--json", "m.json", "train.py")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads((project.folder / "m.json").read_text())
    assert not report["lost"]
    return report


def memory_ids(health: list[dict[str, Any]]) -> set[str]:
    """The findings about memory: others depend on what else the machine does."""
    about = {"copy-on-write", "memory-leak", "growing-cache", "kept-batches", "shm-full", "descriptors"}
    return {one["id"] for one in health} & about


@pytest.mark.parametrize(
    ("source", "check", "said"),
    [
        (COPIED, "copy-on-write", "train_set.samples, a list of 300,000 strings"),
        (KEPT, "kept-batches", "batch[1] of loader stays in memory"),
        (CACHED, "growing-cache", "train_set.cache has "),
        (LEAKED, "memory-leak", "train.py:"),
    ],
    ids=["copied", "kept", "cached", "leaked"],
)
def test_a_planted_trouble_is_found_under_its_id(project, source: str, check: str, said: str) -> None:
    health = report_of(project, source)["health"]
    found = [one for one in health if one["id"] == check]
    assert len(found) == 1, health
    assert said in found[0]["message"]
    others = memory_ids(health) - {check}
    assert others <= ({"descriptors", "shm-full"} if check == "kept-batches" else set()), health
    if check == "memory-leak":
        line = (START + source).splitlines().index("        seen.append([index] * 10_000)  # the leak") + 1
        assert (found[0]["file"], found[0]["line"]) == ("train.py", line)


@pytest.mark.parametrize("source", [PACKED, CLONED, FULL, LET_GO], ids=["packed", "cloned", "full", "let go"])
def test_a_healthy_look_alike_is_silent(project, source: str) -> None:
    report = report_of(project, source)
    assert memory_ids(report["health"]) == set()
    memory = report["memory"]
    assert memory["workers_most"] == 2
    assert 0 < memory["workers_uss_peak_bytes"] <= memory["workers_pss_peak_bytes"]
    assert memory["workers_pss_peak_bytes"] <= memory["workers_peak_bytes"]
    assert memory["descriptors"]["peak"] > 0


def test_training_is_the_same_and_memory_is_in_every_report(project) -> None:
    project.write(
        "train.py",
        """
        from data import *
        for x, y in DataLoader(Numbers(60, load_s=0.001), batch_size=4, num_workers=2):
            print(x.sum().item())
        """,
    )
    done = project.unstarve("run", "-o", "m.unstarve", "--json", "m.json", "train.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == project.python("train.py").stdout
    traced = project.unstarve("run", "--memory", "-o", "t.unstarve", "train.py")
    assert traced.stdout == done.stdout
    assert "2 workers" in " ".join(done.stderr.split())
    assert json.loads((project.folder / "m.json").read_text())["memory"]["training_uss_peak_bytes"] > 0
