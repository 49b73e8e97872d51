"""`unstarve run --engine`: an unmodified script, faster loaders, the same batches."""

from __future__ import annotations

import json

import pytest

TRAIN = """
import hashlib, sys, torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

class Squares(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((8,), index ** 2), index

def main():
    torch.manual_seed(3)
    seen = hashlib.sha256()
    held = DataLoader(TensorDataset(torch.arange(640.).reshape(64, 10)), batch_size=8, shuffle=True)
    made = DataLoader(Squares(), batch_size=8, shuffle=True, num_workers=1)
    for _ in range(2):
        for loader in (held, made):
            for batch in loader:
                for part in batch:
                    seen.update(part.numpy().tobytes())
    print(seen.hexdigest(), torch.rand(1).item())

if __name__ == "__main__":
    main()
"""


def run_on(project, engine: str):
    output = ("-f", "-o", "run.unstarve", "--json", "report.json")
    return project.unstarve("run", "--engine", engine, *output, "train.py")


@pytest.fixture
def alone(project) -> str:
    project.write("train.py", TRAIN)
    return project.python("train.py").stdout


def test_the_batches_are_the_same_and_the_report_names_the_engines(project, alone: str) -> None:
    done = run_on(project, "auto")
    assert done.stdout == alone
    loaders = json.loads((project.folder / "report.json").read_text())["loaders"]
    assert {loader["name"]: loader["config"]["engine"] for loader in loaders} == {
        "held": "gather",
        "made": "ring",
    }
    assert {loader["steps"] for loader in loaders} == {16}


def test_an_engine_that_cannot_serve_a_loader_ends_the_command_as_in_the_python_api(project) -> None:
    project.write("train.py", TRAIN)
    done = run_on(project, "gather")
    assert done.returncode == 1
    assert "ValueError: engine 'gather' cannot run this loader" in done.stderr


def test_an_unknown_engine_is_refused_before_anything_runs(project, alone: str) -> None:
    done = project.unstarve("run", "--engine", "warp", "train.py")
    assert done.returncode == 2
    assert "warp" in done.stderr
    assert done.stdout == ""
