"""What a user sees of a hang: one block while it lasts, a line when it is over, a finding in the report."""

from __future__ import annotations

import json
import re
from typing import Any

import psutil

from unstarve import load_run

SEQUENCE = """
import threading, time
import torch
import unstarve
from torch.utils.data import DataLoader, Dataset, IterableDataset, _utils

_utils.MP_STATUS_CHECK_INTERVAL = 0.2  # a loader that is let go waits so long for its workers

class Healthy(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return index

class Numbers(Healthy):
    def __getitem__(self, index):
        if index == 5:
            time.sleep(1000)  # getitem
        return index

class Stream(IterableDataset):
    def __iter__(self):
        yield from range(2)
        time.sleep(1001)  # stream

class Blocking:
    def __len__(self):
        return 8
    def __iter__(self):
        yield from range(6)
        threading.Event().wait()  # sampler

class Rows(Dataset):
    releases_gil = True
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return torch.zeros(2)
    def read_batch(self, indices):
        if 5 in indices:
            time.sleep(1003)  # threads
        return torch.zeros(len(indices), 2)

CASES = {
    "alone": lambda: DataLoader(Numbers(), batch_size=2),
    "workers": lambda: DataLoader(Numbers(), batch_size=2, num_workers=2),
    "ring": lambda: unstarve.DataLoader(Numbers(), batch_size=2, num_workers=2, engine="ring"),
    "stream": lambda: DataLoader(Stream(), batch_size=2, num_workers=1),
    "sampler": lambda: DataLoader(Healthy(), batch_size=2, sampler=Blocking(), num_workers=1),
    "sampler-alone": lambda: DataLoader(Healthy(), batch_size=2, sampler=Blocking()),
    "threads": lambda: unstarve.DataLoader(Rows(), batch_size=2, num_workers=2, engine="threads"),
}
if __name__ == "__main__":
    import os
    for name, make in CASES.items():
        said = "iter()"
        while said.startswith("iter()"):  # on a busy machine, starting workers may take as long
            loader = make()
            try:
                for batch in loader:
                    pass
            except unstarve.HangError as error:
                said = str(error)
        print(name, said.splitlines()[0], flush=True)
        loader = None
    os._exit(0)
"""

RAISED = {
    "alone": ("the training process", "# getitem", "fetching sample 5 (2nd of 2) of batch 2", "sleeps"),
    "workers": ("worker 0", "# getitem", "fetching sample 5 (2nd of 2) of batch 2", "sleeps"),
    "ring": ("worker 0", "# getitem", "fetching sample 5 (2nd of 2) of batch 2", "sleeps"),
    "stream": ("worker 0", "# stream", "fetching batch 1", "sleeps"),
    "sampler": ("the training process", "# sampler", "", "waits for a lock inside this process"),
    "sampler-alone": ("the training process", "# sampler", "", "waits for a lock inside this process"),
    "threads": ("the training process", "# threads", "", "waits for a lock inside this process"),
}


def sections(text: str) -> list[str]:
    """The blocks about hangs in what was printed."""
    return re.findall(r"^unstarve: no batch .*\n(?:  .*\n)+", text, re.MULTILINE)


def test_a_hang_that_is_to_raise_ends_the_wait_and_is_kept(project: Any) -> None:
    project.write("train.py", SEQUENCE)
    done = project.unstarve(
        "run", "-q", "-o", "run.unstarve", "--hang-after", "1.5", "--on-hang", "raise", "train.py"
    )
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(RAISED)
    assert all("no batch from" in line for line in done.stdout.splitlines()), done.stdout
    hangs = [one for one in load_run(project.folder / "run.unstarve").breakage.hangs if one.batch is not None]
    for hang, (process, line, doing, wait) in zip(hangs, RAISED.values(), strict=True):
        assert (hang.process, hang.doing, hang.ended) == (process, doing, "raised")
        assert line in hang.source
        assert wait in hang.wait
        assert hang.text in done.stderr
    blocks = sections(done.stderr)
    assert len(blocks) == len(RAISED)
    assert max(len(line) for block in blocks for line in block.splitlines()) <= 100  # COLUMNS of the tests


SLOW = """
from data import *
class Slow(Numbers):
    def __getitem__(self, index):
        if index == 9:
            time.sleep(3)
        return super().__getitem__(index)
if __name__ == "__main__":
    loader = DataLoader(Slow(16), batch_size=4, num_workers=1)
    for step, batch in enumerate(loader):
        if step == 1:
            time.sleep(3)  # a slow step is not a hang: meanwhile batch 2 is made
        print(batch[1].tolist())
"""


def test_a_hang_that_resolves_is_reported_and_training_goes_on(project: Any) -> None:
    project.write("train.py", SLOW.replace("step == 1", "step == 3"))
    alone = project.python("train.py")
    done = project.unstarve("run", "-o", "run.unstarve", "--hang-after", "1", "train.py")
    assert (done.returncode, done.stdout) == (0, alone.stdout)
    first = sections(done.stderr)[0]
    assert "training waits for batch 2 of epoch 0" in " ".join(first.split())
    assert "fetching sample 9 (2nd of 4) of batch 2" in " ".join(first.split())
    assert re.search(
        r"^unstarve: the batch came after \d+\.\d s; training goes on\.$", done.stderr, re.MULTILINE
    )
    (found,) = [one for one in project.report()["health"] if one["id"] == "worker-hang"]
    assert (found["file"], found["line"]) == ("train.py", 6)
    assert "then the batch came" in found["message"]


def test_a_slow_step_is_no_hang(project: Any) -> None:
    project.write("train.py", SLOW)
    done = project.unstarve("run", "-q", "-o", "run.unstarve", "--hang-after", "2", "train.py")
    assert done.returncode == 0
    assert "no batch" not in done.stderr


HELD = """
import itertools
from data import *
class Endless(Numbers):
    def __getitem__(self, index):
        return sum(itertools.repeat(0))
if __name__ == "__main__":
    for batch in DataLoader(Endless(8), batch_size=4):
        pass
"""


def test_a_training_process_that_holds_the_interpreter_lock_is_shown(project: Any) -> None:
    project.write("train.py", HELD)
    running = project.start("run", "-q", "-o", "run.unstarve", "--hang-after", "1", "train.py")
    block = next_block(running.stderr)
    project.end()
    assert "train.py:6 `return sum(itertools.repeat(0))`" in block
    assert "It computes." in block


SPAWNED = """
from data import *
class Hanging(Numbers):
    def __getitem__(self, index):
        time.sleep(1000)
if __name__ == "__main__":
    for batch in DataLoader(Hanging(8), batch_size=4, num_workers=1, multiprocessing_context="spawn"):
        pass
"""


def test_a_spawned_worker_shows_its_stack_too_and_can_be_inspected(project: Any) -> None:
    project.write("train.py", SPAWNED)
    running = project.start("run", "-q", "-o", "run.unstarve", "--hang-after", "1", "train.py")
    while "is in train.py:5 `time.sleep(1000)`" not in next_block(running.stderr):
        pass
    launcher = psutil.Process(running.pid)
    (training,) = launcher.children()
    worker = next(one for one in training.children() if "spawn_main" in " ".join(one.cmdline()))
    looks = [
        json.loads(project.unstarve("inspect", one.pid, "--json", "-").stdout)
        for one in (launcher, training, worker)
    ]
    project_text = project.unstarve("inspect", worker.pid, env={"COLUMNS": "80"})
    project.end()
    for look in looks:
        assert look["source"] == "unstarve"
        (picture,) = look["pictures"]
        assert (picture["training"]["pid"], picture["batch"]) == (training.pid, 0)
        (seen,) = picture["workers"]
        assert seen["pid"] == worker.pid
        assert seen["wait"]["words"] == "sleeps"
        assert seen["task"]["sample"] == 0
    assert project_text.returncode == 0
    assert max(map(len, project_text.stdout.splitlines())) <= 80
    assert "Worker 0" in project_text.stdout


def next_block(stream: Any) -> str:
    """The next report of a hang, as one line."""
    lines: list[str] = []
    for line in stream:
        if line.startswith("unstarve: no batch") or (lines and line.startswith("  ")):
            lines.append(line)
        if lines and "Training is left alone" in line:
            return " ".join("".join(lines).split())
    raise AssertionError("the command has ended")
