"""`unstarve tune`: real trainings that tune themselves; what is best there is not for a test to say."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ENDLESS = """
import time
from data import *

def main():
    train_loader = DataLoader(Numbers(4000), batch_size=4, shuffle=True)
    while True:
        for x, y in train_loader:
            time.sleep(0.005)

if __name__ == "__main__":
    try:
        main()
    finally:
        print("cleaned up")
"""

FINISHING = """
import sys, torch
from data import *

if __name__ == "__main__":
    torch.manual_seed(3)
    train_loader = DataLoader(Numbers(120), batch_size=4, shuffle=True)
    val_loader = DataLoader(Numbers(20), batch_size=4)
    for epoch in range(3):
        print([y.tolist() for x, y in train_loader])
        with torch.no_grad():
            print([y.tolist() for x, y in val_loader], torch.rand(1).item())
    sys.exit(7)
"""


@pytest.fixture
def temporary(project) -> Iterator[Path]:
    """Where the tool may put what it needs meanwhile; a short path, as workers have sockets in there."""
    with tempfile.TemporaryDirectory(prefix="un-", ignore_cleanup_errors=True) as folder:
        project.environment["TMPDIR"] = folder
        yield Path(folder)


def test_an_endless_training_is_tuned_stopped_and_run_with_what_was_found(project, temporary) -> None:
    project.write("train.py", ENDLESS)
    # Enough for one stretch to be measured: each step takes 5 ms at least, and a stretch 2 s at most.
    asked = ("--budget", "500steps", "--apply", "tuned.toml", "--patch", "--json", "tune.json")
    done = project.unstarve("tune", *asked, "train.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("cleaned up\n")
    assert "samples/s" in done.stderr
    assert "train_loader (train.py:6)" in done.stderr
    found = json.loads((project.folder / "tune.json").read_text())
    assert found["schema"] == "unstarve.tune/1"
    assert found["ended_by"] in ("settled", "budget")
    (loader,) = found["loaders"]
    assert loader["tuning"]["trials"]
    assert list(temporary.glob("unstarve*")) == []

    again = project.record("--with", "tuned.toml", "--stop-after", "3", "train.py")
    assert again["loaders"][0]["config"]["num_workers"] == loader["tuning"]["chosen"]["num_workers"]
    assert "applied" in again["loaders"][0]["config"]
    assert [message for message in again["lost"] if "tuned.toml" in message] == []


def test_a_training_that_finishes_is_what_it_is_alone(project, temporary) -> None:
    project.write("train.py", FINISHING)
    alone = project.python("train.py")
    done = project.unstarve("tune", "--finish", "train.py")
    assert (done.returncode, done.stdout) == (alone.returncode, alone.stdout)
    assert done.returncode == 7
    shown = " ".join(done.stderr.split())
    assert "val_loader was left alone: it is not training's" in shown
    assert list(temporary.glob("unstarve*")) == []


def test_a_command_without_loaders_is_left_in_peace(project, temporary) -> None:
    project.write("train.py", "import sys; print('done'); sys.exit(3)")
    done = project.unstarve("tune", "--apply", "tuned.toml", "train.py")
    assert (done.returncode, done.stdout) == (3, "done\n")
    assert "iterated no torch DataLoader" in done.stderr
    assert not (project.folder / "tuned.toml").exists()


def test_what_makes_no_sense_starts_nothing(project) -> None:
    project.write("train.py", "print('started')")
    for words in (("--budget", "soon"), ("--apply", "none/tuned.toml")):
        done = project.unstarve("tune", *words, "train.py")
        assert (done.returncode, done.stdout) == (2, "")
        assert len(done.stderr.splitlines()) == 1
