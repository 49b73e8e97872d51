"""Which file a run is written to, and that no run is ever written over by accident."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

WAIT_FOR_GO = """
import os, sys, time
from data import *
for batch in DataLoader(Numbers(40), batch_size=4):
    pass
open(sys.argv[1], "w").close()
while not os.path.exists("go"):
    time.sleep(0.01)
"""


def wait_for(*paths: Path) -> None:
    end = time.monotonic() + 180
    while not all(path.exists() for path in paths):
        assert time.monotonic() < end, f"{paths} did not appear"
        time.sleep(0.01)


def test_a_finished_run_is_replaced_only_by_force(project) -> None:
    project.write("train.py", "from data import *\nfor b in DataLoader(Numbers(6)): pass")
    assert project.record("train.py")["run"]["steps"] == 6
    refused = project.unstarve("run", "-o", "run.unstarve", "train.py")
    assert refused.returncode == 2
    assert "already exists" in refused.stderr
    project.write("train.py", "from data import *\nfor b in DataLoader(Numbers(9)): pass")
    assert project.unstarve("run", "--force", "-o", "run.unstarve", "train.py").returncode == 0
    assert project.report()["run"]["steps"] == 9


def test_two_runs_at_once_never_share_a_name(project) -> None:
    project.write("train.py", WAIT_FOR_GO)
    first = project.start("run", "-o", "run.unstarve", "train.py", "1")
    unnamed = [project.start("run", "train.py", str(n)) for n in (2, 3)]
    wait_for(*(project.folder / n for n in "123"))
    for force in ([], ["--force"]):
        second = project.unstarve("run", *force, "-o", "run.unstarve", "train.py", "4")
        assert second.returncode == 2
        assert "is being recorded right now by another unstarve" in second.stderr
    assert project.report()["run"]["live"]
    assert "still recording" in project.unstarve("report", "run.unstarve").stdout
    (project.folder / "go").touch()
    for process in (first, *unnamed):
        process.communicate(timeout=180)
        assert process.returncode == 0
    runs = sorted(project.folder.glob("*.unstarve*"))
    assert len(runs) == 3
    assert [project.report(run)["run"]["steps"] for run in runs] == [10, 10, 10]


def test_the_run_file_goes_where_it_was_sent_even_if_the_script_moves_about(project) -> None:
    project.write(
        "train.py",
        """
        import os
        from data import *
        os.mkdir("out"); os.chdir("out")
        for b in DataLoader(Numbers(6)): pass
        """,
    )
    done = project.unstarve("run", "-o", "runs/today.unstarve", "--json", "report.json", "train.py")
    assert done.returncode == 0, done.stderr
    assert project.report("runs/today.unstarve")["run"]["steps"] == 6
    assert list((project.folder / "out").iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_a_folder_that_cannot_be_written_sends_the_run_elsewhere(project) -> None:
    project.write("train.py", "from data import *\nfor b in DataLoader(Numbers(6)): pass")
    project.folder.chmod(0o555)
    try:
        done = project.unstarve("run", "train.py", env={"TMPDIR": "/tmp"})
    finally:
        project.folder.chmod(0o755)
    assert done.returncode == 0
    assert "recording to /tmp/unstarve-" in done.stderr


def test_a_folder_that_takes_no_files_sends_the_run_elsewhere(project, tmp_path: Path) -> None:
    """Works for root too: nobody can make a file in /proc."""
    script = project.write("train.py", "from data import *\nfor b in DataLoader(Numbers(6)): pass")
    project.environment |= {"TMPDIR": str(tmp_path), "PYTHONPATH": str(project.folder)}
    done = project.unstarve("run", script, cwd="/proc/self/fdinfo")
    assert done.returncode == 0
    assert "instead" in done.stderr
    (run,) = tmp_path.glob("unstarve-*/train-*.unstarve")
    assert project.report(run)["run"]["steps"] == 6
    named = project.unstarve("run", "-o", "/proc/run.unstarve", script)
    assert named.returncode == 2
    assert "cannot write /proc/run.unstarve" in named.stderr


def test_a_current_folder_that_disappears_costs_nothing(project, tmp_path: Path) -> None:
    source = "import os\nfrom data import *\nos.rmdir(os.getcwd())\nfor b in DataLoader(Numbers(6)): pass"
    script = project.write("train.py", source)
    gone = tmp_path / "gone"
    gone.mkdir()
    done = project.unstarve("run", "-o", tmp_path / "run.unstarve", script, cwd=gone)
    assert done.returncode == 0, done.stderr
    report = project.report()
    assert report["loaders"][0]["where"] == f"{script}:4"
    assert (report["run"]["steps"], report["lost"]) == (6, [])
