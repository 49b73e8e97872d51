"""`unstarve tune`: real trainings that tune themselves; what is best there is not for a test to say."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pexpect
import psutil
import pytest

from image_folders import make_folder
from torchvision_here import torchvision_here

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
    torch.save({}, "model.pt")
    torch.manual_seed(3)
    train_loader = DataLoader(Numbers(120), batch_size=4, shuffle=True)
    val_loader = DataLoader(Numbers(20), batch_size=4)
    for epoch in range(3):
        print([y.tolist() for x, y in train_loader])
        with torch.no_grad():
            print([y.tolist() for x, y in val_loader], torch.rand(1).item())
    sys.exit(7)
"""

SANITY_CHECK = """
import torch
from data import *

if __name__ == "__main__":
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    val_loader = DataLoader(Numbers(40), batch_size=4, num_workers=1, persistent_workers=True)
    with torch.inference_mode():
        for number, (x, y) in enumerate(val_loader):
            if number == 1:
                break
    train_loader = DataLoader(Numbers(120), batch_size=4, shuffle=True)
    for epoch in range(2):
        for x, y in train_loader:
            model(x).mean().backward()
            optimizer.step()
        with torch.inference_mode():
            for x, y in val_loader:
                model(x)
"""

WORKERS = """
import time
from data import *

if __name__ == "__main__":
    train_loader = DataLoader(
        Numbers(4000, load_s=0.003), batch_size=4, num_workers=2, persistent_workers=True
    )
    while True:
        for x, y in train_loader:
            time.sleep(0.005)
"""

IMAGES = """
import torch
from torch.utils.data import DataLoader
from unstarve.benchmark.optional_packages import torchvision

if __name__ == "__main__":
    torch.manual_seed(3)
    steps = torchvision().transforms
    crop = steps.Compose([steps.Resize(20), steps.CenterCrop(16), steps.ToTensor()])
    folder = torchvision().datasets.ImageFolder("images", crop)
    train_loader = DataLoader(folder, batch_size=4, shuffle=True, num_workers=1)
    for epoch in range(3):
        print([y.tolist() for x, y in train_loader], flush=True)
    print(type(train_loader.dataset).__name__, torch.rand(1).item())
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
    asked = ("--budget", "500steps", "--save", "tuned.toml", "--patch", "--json", "tune.json")
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
    done = project.unstarve("tune", "--finish", "--json", "tune.json", "train.py")
    assert (done.returncode, done.stdout) == (alone.returncode, alone.stdout)
    assert done.returncode == 7
    shown = " ".join(done.stderr.split())
    assert shown.startswith("unstarve: training runs with changing loader settings")
    assert "val_loader: validation loader (iterated under no_grad): left alone" in shown
    assert shown.endswith("Files written during the run: model.pt")
    assert json.loads((project.folder / "tune.json").read_text())["files_written"] == ["model.pt"]
    assert list(temporary.glob("unstarve*")) == []


def test_training_is_tuned_although_lightning_checks_validation_first(project, temporary) -> None:
    project.write("train.py", SANITY_CHECK)
    done = project.unstarve("tune", "--finish", "--json", "tune.json", "train.py")
    assert done.returncode == 0, done.stderr
    loaders = json.loads((project.folder / "tune.json").read_text())["loaders"]
    assert "train_loader" in [one["name"] for one in loaders if one["tuning"] is not None]


def test_a_command_without_loaders_is_left_in_peace(project, temporary) -> None:
    project.write("train.py", "import sys; print('done'); sys.exit(3)")
    done = project.unstarve("tune", "--save", "tuned.toml", "train.py")
    assert (done.returncode, done.stdout) == (3, "done\n")
    assert "iterated no torch DataLoader" in done.stderr
    assert not (project.folder / "tuned.toml").exists()


def test_what_makes_no_sense_starts_nothing(project) -> None:
    project.write("train.py", "print('started')")
    for words in (("--budget", "soon"), ("--save", "none/tuned.toml")):
        done = project.unstarve("tune", *words, "train.py")
        assert (done.returncode, done.stdout) == (2, "")
        assert len(done.stderr.splitlines()) == 1


def test_a_training_on_images_sees_the_same_samples_however_they_are_read(project, temporary) -> None:
    torchvision_here()
    make_folder(project.folder / "images", count=60, classes=60)
    line = 1 + project.write("train.py", IMAGES).read_text().splitlines().index(
        "    train_loader = DataLoader(folder, batch_size=4, shuffle=True, num_workers=1)"
    )
    done = project.unstarve("tune", "--finish", "--json", "tune.json", "train.py")
    assert done.returncode == 0, done.stderr
    *epochs, last = done.stdout.splitlines()
    assert [sorted(chain(*json.loads(epoch))) for epoch in epochs] == [list(range(60))] * 3
    assert last.startswith("ImageFolder 0.")
    found = json.loads((project.folder / "tune.json").read_text())
    chosen = found["loaders"][0]["tuning"]["chosen"]
    assert chosen["images"] is (chosen["part"] == "images")

    (project.folder / "by_hand.toml").write_text(
        f"[[loader]]\nfile = 'train.py'\nline = {line}\n[loader.settings]\nnum_workers = 2\nimages = true\n"
    )
    asked = ("--with", "by_hand.toml", "-o", "run.unstarve", "--json", "report.json")
    read = project.unstarve("run", *asked, "train.py")
    assert (read.returncode, read.stdout) == (0, done.stdout)
    config = json.loads((project.folder / "report.json").read_text())["loaders"][0]["config"]
    assert (config["engine"], config["num_workers"]) == ("threads", 2)


def test_ctrl_c_in_a_terminal_shows_what_is_known_so_far(project, temporary, nothing_left) -> None:
    project.write("train.py", ENDLESS)
    terminal = pexpect.spawn(
        "unstarve", ["tune", "--finish", "train.py"],  # else it might end by itself
        cwd=str(project.folder), env=project.options()["env"], timeout=180, encoding="utf-8",
    )  # fmt: skip
    terminal.expect_exact("samples/s")
    nothing_left(psutil.Process(terminal.pid))
    terminal.sendcontrol("c")
    terminal.expect_exact("KeyboardInterrupt")
    terminal.expect_exact("train_loader (train.py:6)")
    terminal.expect_exact("vs. now")
    terminal.expect_exact("interrupted")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.signalstatus == signal.SIGINT  # 130 in a shell
    assert list(temporary.glob("unstarve*")) == []


def test_an_interrupt_of_the_group_leaves_no_worker_and_writes_what_was_asked_for(
    project, temporary, nothing_left
) -> None:
    project.write("train.py", WORKERS)
    shown = project.folder / "shown.txt"
    with shown.open("w") as stderr:
        launcher = project.start(
            "tune", "--finish", "--json", "tune.json", "train.py", start_new_session=True, stderr=stderr
        )
        deadline = time.monotonic() + 180
        while "samples/s" not in shown.read_text():
            assert launcher.poll() is None, shown.read_text()
            assert time.monotonic() < deadline, shown.read_text()
            time.sleep(0.05)
        nothing_left(psutil.Process(launcher.pid))
        os.killpg(launcher.pid, signal.SIGINT)
        launcher.communicate(timeout=180)
    text = shown.read_text()
    assert launcher.returncode == -signal.SIGINT, text
    assert "vs. now" in text
    assert " steps · interrupted\n" in text
    found = json.loads((project.folder / "tune.json").read_text())
    assert (found["ended_by"], found["exit_code"]) == ("interrupt", -signal.SIGINT)
    assert found["loaders"][0]["tuning"]["trials"]
    assert list(temporary.glob("unstarve*")) == []
