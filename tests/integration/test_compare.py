"""Two runs side by side: a difference is claimed only where there is one."""

from __future__ import annotations

import json

import pytest

TRAIN = """
import sys
from data import *
for batch in DataLoader(Numbers(120, load_s=float(sys.argv[1])), batch_size=1):
    time.sleep(0.004)
"""


@pytest.fixture(scope="module")
def runs(shared_project):
    shared_project.write("train.py", TRAIN)
    for name, load_s in (("a", "0.004"), ("like-a", "0.004"), ("slow", "0.020")):
        done = shared_project.unstarve("run", "-q", "-o", f"{name}.unstarve", "train.py", load_s)
        assert done.returncode == 0, done.stderr
    return shared_project


def test_a_faster_run_is_called_faster(runs) -> None:
    done = runs.unstarve("compare", "slow.unstarve", "a.unstarve", "--json")
    change = json.loads(done.stdout)["change"]
    assert done.returncode == 0
    assert change["shown"]
    assert 1.5 < change["low"] <= change["ratio"] <= change["high"]
    assert "as fast as A" in runs.unstarve("compare", "slow.unstarve", "a.unstarve").stdout


def test_a_slower_run_is_called_slower(runs) -> None:
    assert "B is slower" in runs.unstarve("compare", "a.unstarve", "slow.unstarve").stdout


def test_a_run_does_not_differ_from_itself(runs) -> None:
    done = runs.unstarve("compare", "a.unstarve", "a.unstarve")
    assert done.returncode == 0
    assert "No difference shown" in done.stdout


def test_a_run_like_another_passes_a_gate_with_room_for_noise(runs) -> None:
    done = runs.unstarve("compare", "a.unstarve", "like-a.unstarve", "--fail-if", "throughput<-40%")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("gate", "code"),
    [
        ("throughput<-30%", 1),
        ("throughput > -99%", 1),
        ("wait_share>+10pt", 1),
        ("step_p95>12", 1),
        ("throughput<-95%", 0),
        ("wait_share>99", 0),
        ("step_mean<1", 0),
    ],
)
def test_a_gate_decides_the_exit_code(runs, gate: str, code: int) -> None:
    done = runs.unstarve("compare", "a.unstarve", "slow.unstarve", "--fail-if", gate)
    assert done.returncode == code, done.stdout
    assert gate in done.stdout


def test_one_failed_gate_of_several_is_enough(runs) -> None:
    gates = ["--fail-if", "throughput<-95%", "--fail-if", "throughput<-30%"]
    assert runs.unstarve("compare", "a.unstarve", "slow.unstarve", *gates).returncode == 1


@pytest.mark.parametrize("gate", ["speed<5", "throughput", "throughput<fast", "throughput<5 percent", ""])
def test_a_gate_that_makes_no_sense_is_refused(runs, gate: str) -> None:
    done = runs.unstarve("compare", "a.unstarve", "slow.unstarve", "--fail-if", gate)
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot understand the gate" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_without_steps_is_too_short_to_compare(runs) -> None:
    runs.write("nothing.py", "pass")
    runs.unstarve("run", "-q", "-o", "nothing.unstarve", "nothing.py")
    done = runs.unstarve("compare", "a.unstarve", "nothing.unstarve")
    assert done.returncode == 0
    assert "too short" in done.stdout
    gated = runs.unstarve("compare", "a.unstarve", "nothing.unstarve", "--fail-if", "throughput<-5%")
    assert gated.returncode == 1
