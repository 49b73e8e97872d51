"""The report suits the place it is printed to."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from fakes import FakeTraining, run_of
from run_files import write_run


@pytest.fixture(scope="module")
def recorded(shared_project):
    training = FakeTraining()
    training.epoch([(0.008, 0.001)] * 40, "a_loader_with_quite_a_long_name")
    run = dataclasses.replace(run_of(training), command=("folder with a long name/train.py", "--lr", "0.1"))
    write_run(shared_project.folder / "run.unstarve", run)
    return shared_project


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(recorded, columns: int) -> None:
    done = recorded.unstarve("report", "run.unstarve", env={"COLUMNS": str(columns)})
    assert done.returncode == 0
    assert "STARVED" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= columns


def test_a_pipe_gets_no_colours_and_a_terminal_that_wants_none_neither(recorded) -> None:
    for environment in ({}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}):
        shown = recorded.unstarve("report", "run.unstarve", env=environment).stdout
        assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", shown)
    assert "\x1b" in recorded.unstarve("report", "run.unstarve", env={"FORCE_COLOR": "1"}).stdout


@pytest.mark.parametrize(
    "locale", [{"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}]
)
def test_a_terminal_of_few_letters_still_gets_the_report(recorded, locale: dict[str, str]) -> None:
    done = recorded.unstarve("report", "run.unstarve", env=locale)
    assert done.returncode == 0
    assert "STARVED" in done.stdout
    assert "40 steps" in done.stdout


def test_a_reader_that_has_seen_enough_is_no_error(recorded) -> None:
    done = recorded.call("sh", "-c", "unstarve report run.unstarve | head -n 1")
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_json_on_standard_output_is_json_alone(recorded) -> None:
    done = recorded.unstarve("report", "run.unstarve", "--json", "-")
    report = json.loads(done.stdout)
    assert done.stderr == ""
    assert report["schema"] == "unstarve.report/1"
    assert report["verdict"]["state"] == "starved"
    assert report["wait_share"] == pytest.approx(8 / 9, abs=0.01)


def test_a_hundred_thousand_steps_are_recorded_and_reported(project) -> None:
    project.write(
        "train.py",
        """
        import unstarve
        from data import *
        for batch in unstarve.watch([torch.zeros(1, 1)] * 100_000, name="fast"):
            pass
        """,
    )
    report = project.record("train.py")
    assert report["run"]["steps"] == report["loaders"][0]["samples"] == 100_000
    assert (project.folder / "run.unstarve").stat().st_size < 100_000 * 120


def test_a_run_can_leave_its_page_and_its_json_at_once(project) -> None:
    project.write("train.py", "from data import *\nfor batch in DataLoader(Numbers(40)):\n    pass\n")
    done = project.unstarve("run", "--html", "page.html", "--json", "report.json", "-q", "train.py")
    assert done.returncode == 0, done.stderr
    assert (project.folder / "page.html").read_text().startswith("<!doctype html>")
    assert json.loads((project.folder / "report.json").read_text())["run"]["steps"] == 40


def test_a_page_that_could_not_be_written_is_refused_before_training(project) -> None:
    project.write("train.py", "open('began', 'w')\n")
    done = project.unstarve("run", "--html", "nowhere/page.html", "train.py")
    assert done.returncode == 2
    assert "cannot write nowhere/page.html" in done.stderr
    assert not (project.folder / "began").exists()
