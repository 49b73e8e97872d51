"""The lab of the bottlenecks: each fault is found by name, and changes nothing but the time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from unstarve.errors import UsageError
from unstarve.labs.all_labs import lab_named
from unstarve.labs.lab import Fault
from unstarve.labs.started import Started, start
from unstarve.labs.workload import Workload, joined

LAB = lab_named("bottlenecks")
GUILTY = [fault for fault in LAB.faults if fault.least_speedup is not None]


def begin(folder: Path, fault: str) -> Started:
    """Start the lab with this fault in case a."""
    seed = next(seed for seed in range(1000) if LAB.drawn(seed)[0].name == fault)
    started = start(LAB.name, folder, seed=seed)
    try:
        Workload(folder)
    except UsageError as error:
        pytest.skip(str(error))
    return started


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout


@pytest.mark.parametrize("fault", GUILTY, ids=lambda fault: fault.name)
def test_the_report_names_the_fault(fault: Fault, tmp_path: Path) -> None:
    begin(tmp_path, fault.name)
    named = (_longest_wait(tmp_path) for _ in range(4))
    assert fault.verdict in named, "of four runs, since a busy machine hides the fault in some"


def _longest_wait(folder: Path) -> str:
    command = ("-m", "unstarve", "run", "-q", "--force", "--stop-after", "24", "--json", "-", "case_a.py")
    told = json.loads(run(*command, cwd=folder))
    # A busy machine makes every run wait for cores and for its start.
    waits = {name: s for name, s in told["waits"].items() if name not in ("contention", "startup")}
    return max(waits, key=waits.__getitem__)


@pytest.mark.parametrize("fault", GUILTY, ids=lambda fault: fault.name)
def test_a_fault_changes_the_time_and_not_the_samples(fault: Fault, tmp_path: Path) -> None:
    begin(tmp_path, fault.name)
    first, second = Workload(tmp_path, case="a"), Workload(tmp_path)
    samples = [first.sample(index) for index in (0, 7, 127)]
    assert not torch.equal(samples[0], samples[1])
    again = joined(second.collate([second.sample(index) for index in (0, 7, 127)]))
    assert torch.equal(again.reshape(3, 64, 64), torch.stack(samples))


def test_a_file_that_takes_sleep_out_of_its_module_waits_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(tmp_path, "latency")

    def never(_seconds: float) -> None:
        raise AssertionError("the learner's sleep was called")

    monkeypatch.setattr(time, "sleep", never)
    Workload(tmp_path).sample(0)


def test_the_stopwatch_shows_the_many_tensors_of_a_slow_hand_off(tmp_path: Path) -> None:
    begin(tmp_path, "handoff")
    told = run("stopwatch.py", "a", cwd=tmp_path)
    assert "tensors in it         128" in told
