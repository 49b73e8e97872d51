"""`unstarve run --perf`: the processor's counters, or one sentence about why there are none."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from unstarve.api import diagnose
from unstarve.collect import perf_counters
from unstarve.launch.command import launch
from unstarve.model.launch_settings import LaunchSettings
from unstarve.record.run_file import claim, finish, parts_folder
from unstarve.record.run_reader import read_run

TRAIN = """
from data import *
for x, y in DataLoader(Numbers(60, load_s=0.001), batch_size=4, num_workers=2):
    print(x.sum().item())
"""
SOFTWARE = ((1, 1), (1, 2), (1, 3), (1, 4))
"""Events that the kernel counts without a processor's help, on any machine."""


def test_training_is_the_same_and_the_report_has_rates_or_says_why_not(project) -> None:
    project.write("train.py", TRAIN)
    done = project.unstarve("run", "-o", "p.unstarve", "--json", "p.json", "--perf", "train.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == project.python("train.py").stdout
    perf = json.loads((project.folder / "p.json").read_text())["perf"]
    if perf["why_not"] is None:
        assert perf["step"]["cycles"] > 0
        assert perf["loading"]["cycles"] > 0
    else:
        assert "perf_event_open failed with" in perf["why_not"]
        report = " ".join(done.stderr.split())
        assert "--perf: processor counters cannot be read" in report
        assert report.count("perf_event_open") == 1


def test_without_perf_there_are_no_counts(project) -> None:
    project.write("train.py", TRAIN)
    project.unstarve("run", "-o", "p.unstarve", "--json", "p.json", "train.py")
    assert json.loads((project.folder / "p.json").read_text())["perf"] is None


@pytest.mark.parametrize("workers", [0, 2])
def test_steps_and_fetches_are_counted_in_real_processes(
    project, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(perf_counters, "_EVENTS", SOFTWARE)
    if (why_not := perf_counters.why_not_perf()) is not None:
        pytest.skip(why_not)
    events = f"import unstarve.collect.perf_counters as p\np._EVENTS = {SOFTWARE}\n"
    script = TRAIN.replace("num_workers=2", f"num_workers={workers}").replace("\nfor", "\n" + events + "for")
    monkeypatch.chdir(project.folder)
    run = Path("p.unstarve")
    claim(run, ["train.py"], "run")
    settings = LaunchSettings(str(parts_folder(run).absolute()), "0", perf=True)
    assert launch([sys.executable, str(project.write("train.py", script))], settings) == 0
    assert finish(run, 0) is None
    recorded = read_run(run)
    assert sum(process.loading_counts is not None for process in recorded.processes) == max(workers, 1)
    perf = diagnose(recorded).perf
    assert perf is not None
    assert perf.why_not is None
    assert perf.step is not None
    assert perf.loading is not None
    assert perf.loading.cycles > 0
