"""Ten healthy scripts: no check finds anything, in the source, before the run or in the run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from unstarve.api import diagnose, load_run
from unstarve.checks.source.all_checks import check_paths
from unstarve.model.checks import CHECKS
from unstarve.model.finding import Group

SCRIPTS = sorted((Path(__file__).parent.parent / "data" / "healthy").glob("*.py"))


def unstarve(*arguments: object) -> str:
    command = [sys.executable, "-m", "unstarve", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_there_are_ten_of_them() -> None:
    assert len(SCRIPTS) == 10


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_nothing_is_found_in_the_source(script: Path) -> None:
    assert check_paths([script]).findings == ()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_nothing_is_found_before_the_run(script: Path) -> None:
    told = json.loads(unstarve("check", "--json", "-", script))
    # How long the first batch takes depends on the machine and on what else it does.
    assert [one for one in told["findings"] if one["id"] != "slow-start"] == []
    assert told["loaders"]
    assert told["problems"] == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_nothing_is_found_in_the_run(script: Path, tmp_path: Path) -> None:
    unstarve("run", "-o", tmp_path / "a.unstarve", script)
    health = diagnose(load_run(tmp_path / "a.unstarve")).health
    # How much time something costs depends on the machine and on what else it does.
    assert [one for one in health if CHECKS[one.id].group is not Group.SPEED_AND_MEMORY] == []
