"""Programs that load through the ring engine: however they end nothing is left, and they can be recorded."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import psutil
import pytest

import unstarve
from unstarve.analyze.batch_production import productions, workers_of

ENDLESS = """
import sys
from unstarve import DataLoader
from data import Numbers

if __name__ == "__main__":
    options = dict(num_workers=2, engine="ring", multiprocessing_context=sys.argv[1])
    for number, batch in enumerate(DataLoader(Numbers(10**6), batch_size=8192, **options)):
        if number == 2:
            print("loading", flush=True)
"""

RECORDED = """
import sys
from unstarve import DataLoader
from data import Numbers

if __name__ == "__main__":
    options = dict(num_workers=2, engine="ring", multiprocessing_context=sys.argv[1])
    loader = DataLoader(Numbers(24 * 4096), batch_size=4096, **options)
    assert sum(len(x) for x, y in loader) == 24 * 4096
"""


@pytest.mark.parametrize(
    ("method", "ending"), [("fork", signal.SIGINT), ("fork", signal.SIGKILL), ("spawn", signal.SIGKILL)]
)
def test_a_program_that_is_ended_leaves_nothing(
    project: Any, nothing_left: Callable[[psutil.Process], None], method: str, ending: signal.Signals
) -> None:
    command = [sys.executable, str(project.write("endless.py", ENDLESS)), method]
    options = project.options(stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    process = subprocess.Popen(command, **options)
    project.started.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "loading\n"
    processes = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    nothing_left(processes[0])
    process.send_signal(ending)
    assert process.wait(180) == -ending
    assert psutil.wait_procs(processes, timeout=180)[1] == []


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_every_batch_is_recorded_with_the_work_that_made_it(project: Any, method: str) -> None:
    report = project.record(project.write("train.py", RECORDED), method)
    assert report["lost"] == []
    assert report["run"]["steps"] == 24
    run = unstarve.load_run(project.folder / "run.unstarve")
    training = next(process for process in run.processes if process.batches)
    (made,) = productions(training, workers_of(run.processes)).values()
    assert made.workers == 2
    assert sorted(made.by_task) == list(range(24))
    for batch in made.by_task.values():
        assert batch.sent is not None
        assert batch.received is not None
        assert batch.sent.put_ns <= batch.sent.end_ns <= batch.received.arrived_ns
