"""Reading a run needs no torch."""

from __future__ import annotations

import json

import pytest

from fakes import simple_run
from run_files import write_run


@pytest.fixture(scope="module")
def bare(shared_project):
    """A project with a recorded run, in which torch cannot be imported any more."""
    shared_project.write("train.py", "from data import *")
    write_run(shared_project.folder / "run.unstarve", simple_run([(0.004, 0.001)] * 50))
    shared_project.write("none/sitecustomize.py", "import sys; sys.modules['torch'] = None")
    shared_project.environment["PYTHONPATH"] = str(shared_project.folder / "none")
    assert shared_project.python("-c", "import torch").returncode == 1
    return shared_project


def test_a_report_is_printed(bare) -> None:
    done = bare.unstarve("report", "run.unstarve")
    assert (done.returncode, done.stderr) == (0, "")
    assert "50 steps" in done.stdout
    assert bare.report()["run"]["steps"] == 50


def test_runs_are_compared(bare) -> None:
    done = bare.unstarve("compare", "run.unstarve", "run.unstarve", "--json", "-")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["change"]["ratio"] == 1


def test_help_is_printed(bare) -> None:
    for words in (["--help"], ["run", "--help"], ["ideal", "--help"], ["--version"]):
        assert bare.unstarve(*words).returncode == 0


def test_a_command_that_needs_no_torch_runs(bare) -> None:
    bare.write("hello.py", "print('hello')")
    assert bare.unstarve("run", "-q", "hello.py").stdout == "hello\n"


def test_a_command_that_needs_torch_fails_as_it_would_alone(bare) -> None:
    done = bare.unstarve("run", "-q", "train.py")
    assert done.returncode == 1
    assert "unstarve" not in done.stderr
