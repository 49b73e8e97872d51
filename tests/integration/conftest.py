"""A folder with real training scripts in it, and the public command line to run them with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

UNSTARVE = Path(sys.executable).with_name("unstarve")
LONGEST_S = 240

DATA = """
import time
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Numbers(Dataset):
    '''Sample i is four floats of value i, and i itself: 24 bytes.'''

    def __init__(self, count, load_s=0.0):
        self.count, self.load_s = count, load_s

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.load_s:
            time.sleep(self.load_s)
        return torch.full((4,), float(index)), index

class Stream(IterableDataset):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return iter([torch.full((4,), float(i)) for i in range(self.count)])
"""


@dataclass
class Project:
    """A user's working folder. `environment` is what differs from the caller's."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def write(self, name: str, source: str) -> Path:
        """Write a script; it finds the datasets above in ``data``."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        return path

    def options(self, **more: Any) -> dict[str, Any]:
        """How every process of the project is started."""
        found = f"{UNSTARVE.parent}{os.pathsep}{os.environ['PATH']}"
        environment = {
            **os.environ,
            "PATH": found,
            "COLUMNS": "100",
            **self.environment,
            **more.pop("env", {}),
        }
        return {"cwd": self.folder, "env": environment, **more}

    def call(self, *command: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run any command to its end."""
        options = self.options(**{"capture_output": True, "text": True, "timeout": LONGEST_S, **more})
        return subprocess.run([str(word) for word in command], check=False, **options)

    def unstarve(self, *words: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run the command line to its end."""
        return self.call(UNSTARVE, *words, **more)

    def python(self, *words: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run a script without unstarve."""
        return self.call(sys.executable, *words, **more)

    def start(self, *words: str | Path, **more: Any) -> subprocess.Popen[str]:
        """Start the command line and leave it running."""
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
        process = subprocess.Popen([str(UNSTARVE), *map(str, words)], **self.options(**options))
        self.started.append(process)
        return process

    def end(self) -> None:
        """End what a failed test left running."""
        for process in self.started:
            if process.poll() is None:
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
                process.kill()
            with process:  # closes its pipes
                pass

    def record(self, *words: str | Path, verb: str = "run", **more: Any) -> dict[str, Any]:
        """Run a command that ends well under `verb`; the JSON report."""
        out = self.folder / "report.json"
        done = self.unstarve(verb, "-f", "-o", "run.unstarve", "--json", out, *words, **more)
        assert done.returncode == 0, done.stderr
        return json.loads(out.read_text())

    def report(self, run: str | Path = "run.unstarve", **more: Any) -> dict[str, Any]:
        """What ``unstarve report --json`` says about a run."""
        done = self.unstarve("report", run, "--json", "-", **more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def make_project(folder: Path) -> Project:
    project = Project(folder)
    project.write("data.py", DATA)
    return project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A fresh working folder."""
    project = make_project(tmp_path)
    yield project
    project.end()


@pytest.fixture(scope="module")
def shared_project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A working folder for runs that several tests look at."""
    return make_project(tmp_path_factory.mktemp("project"))


@pytest.fixture
def nothing_left() -> Iterator[Callable[[psutil.Process], None]]:
    """Call it with a process to follow: it, its descendants and their shared memory must go with the test."""
    followed: list[psutil.Process] = []

    def follow(process: psutil.Process) -> None:
        followed.extend([process, *process.children(recursive=True)])

    yield follow
    alive = psutil.wait_procs(followed, timeout=180)[1]
    for process in alive:
        process.kill()
    assert alive == []
    shared_memory = [path.name for path in Path("/dev/shm").glob("torch_*")]  # torch_PID_…
    assert [name for name in shared_memory if int(name.split("_")[1]) in {p.pid for p in followed}] == []
