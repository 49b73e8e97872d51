"""`unstarve check`: a script runs until its first batches, every loader is checked, and nothing is left."""

from __future__ import annotations

import json
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.integration.conftest import Project

CHECKS = """
import multiprocessing
from unstarve.checks.objects import all_checks
from unstarve.model.checks import finding

def few_workers(subject):
    if subject.loader.num_workers < 2 and not multiprocessing.active_children():
        yield finding("no-workers", f"{subject.name} of {subject.dataset_name}", "num_workers=2",
                      file=subject.file, line=subject.line)

def many_rows(subject):
    if subject.batches:
        seen = f"{subject.name}: {len(subject.batches)} batches, {subject.is_training}"
        yield finding("many-tensors", seen, "fewer", file=subject.file, line=subject.line)

all_checks.SPEED_AND_MEMORY = (few_workers, many_rows)
"""

TRAIN = """
import planted
import torch
from data import DataLoader, Numbers

train_set, val_set = Numbers(64), Numbers(32)
train_loader = DataLoader(train_set, batch_size=4, shuffle=True, num_workers=2)
val_loader = DataLoader(val_set, batch_size=4)
weight = torch.zeros(4, requires_grad=True)
for epoch in range(3):
    for step, (rows, _) in enumerate(train_loader):
        print(f"step {step}", flush=True)
        (rows @ weight).sum().backward()
    open("checkpoint", "w").close()
"""


@pytest.fixture
def checked(project: Project) -> Project:
    """A project whose loaders find two planted checks."""
    project.write("planted.py", CHECKS)
    project.write("train.py", TRAIN)
    return project


def json_of(project: Project, *words: str, code: int = 1, **more: Any) -> dict[str, Any]:
    done = project.unstarve("check", "--json", "-", *words, **more)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_a_script_is_checked_and_ends_before_it_saves_anything(checked: Project) -> None:
    found = json_of(checked, "train.py")
    assert found["schema"] == "unstarve.check/1"
    assert not (checked.folder / "checkpoint").exists()
    assert [(one["id"], one["message"], one["line"]) for one in found["findings"]] == [
        ("many-tensors", "train_loader: 3 batches, True", 7),
        ("many-tensors", "val_loader: 3 batches, None", 8),
        ("no-workers", "val_loader of val_set", 8),
    ]
    assert [(one["name"], one["batches"], one["workers"]) for one in found["loaders"]] == [
        ("train_loader", 3, 2),
        ("val_loader", 3, 0),
    ]
    assert found["stopped_at"] == "train_loader"
    assert found["problems"] == []


def test_what_the_script_prints_does_not_mix_with_the_findings(checked: Project) -> None:
    done = checked.unstarve("check", "train.py")
    assert done.returncode == 1
    assert done.stderr.count("step ") == 3
    assert "step" not in done.stdout
    assert done.stdout.startswith("3 warnings in train.py\n")
    assert "train.py:8" in done.stdout


def test_the_severity_that_fails_can_be_chosen(checked: Project) -> None:
    assert checked.unstarve("check", "--fail-on", "error", "train.py").returncode == 0
    checked.write("pyproject.toml", "[tool.unstarve.check]\nfail-on = 'never'\n")
    assert checked.unstarve("check", "train.py:train_loader").returncode == 0
    assert checked.unstarve("check", "--fail-on", "note", "train.py:train_loader").returncode == 1


def test_findings_are_ignored_by_option_by_the_project_and_in_the_line(checked: Project) -> None:
    checked.write("pyproject.toml", "[tool.unstarve.check]\nignore = ['many-tensors']\n")
    assert [one["id"] for one in json_of(checked, "train.py")["findings"]] == ["no-workers"]
    assert json_of(checked, "--ignore", "no-workers", "train.py", code=0)["findings"] == []
    ignored = TRAIN.replace("batch_size=4)\n", "batch_size=4)  # unstarve: ignore[no-workers]\n")
    checked.write("train.py", ignored)
    assert json_of(checked, "train.py", code=0)["findings"] == []


def test_an_attribute_is_checked_alone_and_options_may_follow_it(checked: Project) -> None:
    checked.write(
        "loaders.py",
        """
        import planted
        from data import DataLoader, Numbers

        first = DataLoader(Numbers(8), batch_size=4)

        def make():
            second = DataLoader(Numbers(8), batch_size=2)
            return {"train": first, "val": second}

        def needs(path):
            pass
        """,
    )
    done = checked.unstarve("check", "loaders.py:first", "--json", "-")
    assert [one["name"] for one in json.loads(done.stdout)["loaders"]] == ["first"]
    assert [one["name"] for one in json_of(checked, "loaders:make")["loaders"]] == ["first", "second"]
    for name, sentence in {
        "loaders:third": "loaders has no third; it has first",
        "loaders:needs": "needs() cannot be called without arguments",
        "nowhere:first": "no module nowhere",
        "loaders:Numbers": "Numbers is a class",
        "loaders:planted": "must be a DataLoader or a dataset, got module",
    }.items():
        wrong = checked.unstarve("check", name)
        assert wrong.returncode == 2
        assert sentence in wrong.stderr


def test_of_a_dataset_only_what_concerns_datasets_is_reported(checked: Project) -> None:
    checked.write("sets.py", "import planted\nfrom data import Numbers\ntrain_set = Numbers(8)\n")
    found = json_of(checked, "sets.py:train_set", code=0)
    assert found["findings"] == []
    assert [(one["name"], one["batches"]) for one in found["loaders"]] == [("train_set", 2)]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            "raise LookupError('no data')",
            "failed with exit code 1 before its loaders were checked in full: LookupError",
        ),
        ("print('nothing')", "train.py created no DataLoader, so nothing was checked"),
        ("import time\ntime.sleep(600)", "train.py created no loader within 2.00 s"),
    ],
    ids=["fails", "no loader", "never begins"],
)
def test_a_script_that_cannot_be_checked_says_why(project: Project, source: str, sentence: str) -> None:
    project.write("train.py", source)
    limit = ["--timeout", "2"] if "sleep" in source else []
    done = project.unstarve("check", *limit, "train.py", env={"COLUMNS": "300"})
    assert done.returncode == 2
    assert sentence in done.stdout
    assert ("Traceback" in done.stderr) is ("raise" in source)


def test_a_script_that_catches_its_end_does_not_go_on(checked: Project) -> None:
    checked.write(
        "train.py",
        """
        import planted
        from data import DataLoader, Numbers

        loader = DataLoader(Numbers(64), batch_size=4)
        for _ in range(3):
            try:
                for batch in loader:
                    pass
            except BaseException:
                print("caught", flush=True)
        open("checkpoint", "w").close()
        """,
    )
    done = checked.unstarve("check", "train.py")
    assert done.returncode == 1
    assert done.stderr.count("caught") == 1
    assert not (checked.folder / "checkpoint").exists()


def test_a_script_that_creates_a_loader_for_every_batch_is_ended_too(checked: Project) -> None:
    checked.write(
        "train.py",
        """
        import planted
        from data import DataLoader, Numbers

        for _ in range(1000):
            loader = DataLoader(Numbers(64), batch_size=4)
            batch = next(iter(loader))
        open("checkpoint", "w").close()
        """,
    )
    found = json_of(checked, "train.py")
    assert {one["line"] for one in found["findings"]} == {6}
    assert not (checked.folder / "checkpoint").exists()


def test_a_training_epoch_shorter_than_the_first_batches_ends_the_script(checked: Project) -> None:
    checked.write("train.py", TRAIN.replace("Numbers(64)", "Numbers(8)"))
    found = json_of(checked, "train.py")
    assert [one["batches"] for one in found["loaders"]] == [2, 3]
    assert not (checked.folder / "checkpoint").exists()


def test_validation_before_training_does_not_end_the_script(checked: Project) -> None:
    validate = "with torch.no_grad():\n    for rows in val_loader: pass\nfor epoch in range(3):"
    source = TRAIN.replace("for epoch in range(3):", validate).replace("Numbers(32)", "Numbers(8)")
    checked.write("train.py", source)
    assert json_of(checked, "train.py")["stopped_at"] == "train_loader"


def test_ranks_report_what_they_have_in_common_once(checked: Project) -> None:
    checked.write(
        "ranks.py",
        """
        import subprocess, sys
        both = [subprocess.Popen([sys.executable, "train.py"]) for _ in range(2)]
        sys.exit(max(one.wait() for one in both))
        """,
    )
    found = json_of(checked, "ranks.py")
    assert len(found["findings"]) == 3
    assert [one["name"] for one in found["loaders"]] == ["train_loader", "val_loader"]


def test_slow_samples_are_named(project: Project) -> None:
    project.write(
        "train.py",
        """
        import time
        from data import DataLoader, Numbers

        class Uneven(Numbers):
            def __getitem__(self, index):
                if index == 60:
                    time.sleep(1)
                return super().__getitem__(index)

        train_set = Uneven(61)
        loader = DataLoader(train_set, batch_size=4)
        for batch in loader:
            pass
        """,
    )
    found = json_of(project, "--samples", "31", "train.py")
    slow = [one for one in found["findings"] if one["id"] == "slow-sample"]
    assert len(slow) == 1
    assert "train_set[60]" in slow[0]["message"]
    assert slow[0]["line"] == 12


@pytest.mark.parametrize(
    "loader",
    [
        "from torchdata.stateful_dataloader import StatefulDataLoader as DataLoader",
        "from unstarve import DataLoader",
    ],
    ids=["torchdata", "unstarve"],
)
def test_other_loaders_are_checked_when_they_are_iterated(checked: Project, loader: str) -> None:
    imports = f"from data import Numbers\n{loader}"
    checked.write("train.py", TRAIN.replace("from data import DataLoader, Numbers", imports))
    assert json_of(checked, "train.py")["loaders"][0]["batches"] == 3
    assert not (checked.folder / "checkpoint").exists()


def test_an_interrupt_leaves_nothing_behind(
    project: Project, nothing_left: Callable[[psutil.Process], None]
) -> None:
    project.write(
        "train.py",
        """
        import time
        from data import DataLoader, Numbers

        loader = iter(DataLoader(Numbers(8), num_workers=1))
        next(loader)
        open("ready", "w").close()
        time.sleep(600)
        """,
    )
    with tempfile.TemporaryDirectory() as temporary:  # a short path: workers put their sockets there
        process = project.start("check", "train.py", env={"TMPDIR": temporary}, start_new_session=True)
        while not (project.folder / "ready").exists():
            assert process.poll() is None
            time.sleep(0.05)
        nothing_left(psutil.Process(process.pid))
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=180) == 130
        assert [one.name for one in Path(temporary).glob("unstarve-*")] == []
