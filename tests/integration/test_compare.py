"""Two runs side by side: a difference is claimed only where there is one."""

from __future__ import annotations

import json

import pytest

from fakes import run_of, simple_run
from run_files import write_run
from unstarve.model import Run

WOBBLE = [0.9, 1.1, 1.0, 0.95, 1.05]


def steps(wait_ms: float, seed: int = 0) -> Run:
    """Steps of 4 ms and a wait that wobbles a little."""
    return simple_run([(wait_ms / 1e3 * WOBBLE[(i + seed) // 9 % 5], 0.004) for i in range(120)])


@pytest.fixture(scope="module")
def runs(shared_project):
    for name, run in (
        ("a", steps(4)),
        ("like-a", steps(4, seed=3)),
        ("slow", steps(20)),
        ("nothing", run_of()),
    ):
        write_run(shared_project.folder / f"{name}.unstarve", run)
    return shared_project


def test_a_faster_run_is_called_faster(runs) -> None:
    done = runs.unstarve("compare", "slow.unstarve", "a.unstarve", "--json", "-")
    change = json.loads(done.stdout)["change"]
    assert done.returncode == 0
    assert change["shown"]
    assert 2.5 < change["low"] <= change["ratio"] <= change["high"] < 3.5  # 24 ms against 8
    assert "as fast as A" in runs.unstarve("compare", "slow.unstarve", "a.unstarve").stdout


def test_a_slower_run_is_called_slower(runs) -> None:
    assert "B is slower" in runs.unstarve("compare", "a.unstarve", "slow.unstarve").stdout


def test_a_run_does_not_differ_from_itself(runs) -> None:
    done = runs.unstarve("compare", "a.unstarve", "a.unstarve")
    assert done.returncode == 0
    assert "No difference shown" in done.stdout


def test_a_run_like_another_passes_a_gate(runs) -> None:
    done = runs.unstarve("compare", "a.unstarve", "like-a.unstarve", "--fail-if", "throughput<-5%")
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
    assert "cannot parse the gate" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_without_steps_is_too_short_to_compare(runs) -> None:
    done = runs.unstarve("compare", "a.unstarve", "nothing.unstarve")
    assert done.returncode == 0
    assert "too short" in done.stdout
    gated = runs.unstarve("compare", "a.unstarve", "nothing.unstarve", "--fail-if", "throughput<-5%")
    assert gated.returncode == 1
