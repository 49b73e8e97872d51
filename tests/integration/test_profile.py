"""`unstarve run --profile` on an unmodified script."""

from __future__ import annotations

import gzip
import json

import pytest

TRAIN = """
from data import *
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(Numbers(60, load_s=0.002), batch_size=4, num_workers=2):
    loss = model(x / 60).pow(2).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


def test_a_window_of_steps_is_profiled_and_training_stays_the_same(project) -> None:
    project.write("train.py", TRAIN)
    done = project.unstarve("run", "-o", "p.unstarve", "--json", "p.json", "--profile", "train.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == project.python("train.py").stdout
    report = json.loads((project.folder / "p.json").read_text())
    profile = report["profile"]
    assert profile["steps"] == profile["waits"] == 3
    phases = {phase["name"]: phase["seconds"] for phase in profile["phases"]}
    assert all(phases[name] > 0 for name in ("data", "forward", "backward", "optimizer"))
    assert sum(phases.values()) == pytest.approx(profile["window_s"], rel=0.03)
    with gzip.open(project.folder / "p.trace.json.gz", "rt") as file:
        trace = json.load(file)
    ours = [event for event in trace["traceEvents"] if event.get("cat") == "unstarve"]
    assert {"fetch", "collate", "send", "receive", "wait"} <= {event["name"] for event in ours}
    workers = {event["pid"] for event in ours if event["name"] == "fetch"}
    assert len(workers) == 2
    # Both clocks mark the same waits. Of several, one is not disturbed between the two readings.
    marked = [e["ts"] for e in trace["traceEvents"] if "enumerate(DataLoader)" in e.get("name", "")]
    waits = [event["ts"] for event in ours if event["name"] == "wait"]
    assert min(abs(one - other) for one in marked for other in waits) < 500
    assert sorted(path.name for path in project.folder.glob("p.*")) == [
        "p.json",
        "p.trace.json.gz",
        "p.unstarve",
    ]
    (memory,) = [one for one in profile["memory"] if one["device"] == "cpu"]
    assert memory["peak_bytes"] > 0
    assert {"forward", "backward"} <= {one["name"] for one in memory["by_phase"]}
    operators = project.unstarve("report", "p.unstarve", "--ops", "--by", "shape").stdout
    assert "aten::addmm [[2], [4, 4]" in operators


def test_a_profile_with_stacks_names_functions_and_is_exported(project) -> None:
    functions = TRAIN.replace("loss = model(x / 60).pow(2).sum()", "loss = forward(x)")
    project.write("train.py", "def forward(x):\n    return model(x / 60).pow(2).sum()\n" + functions)
    done = project.unstarve("run", "-o", "p.unstarve", "--profile", "--profile-stacks", "train.py")
    assert done.returncode == 0, done.stderr
    by_stack = project.unstarve("report", "p.unstarve", "--ops", "--by", "stack").stdout
    assert "aten::addmm train.py(1): forward" in by_stack
    project.unstarve("trace", "p.unstarve", "--stacks", "p.folded")
    stacks = dict(line.rsplit(" ", 1) for line in (project.folder / "p.folded").read_text().splitlines())
    assert any("train.py(1): forward;" in stack and stack.endswith(";aten::addmm") for stack in stacks)
    assert any(stack.startswith("DataLoader worker") and stack.endswith(";fetch") for stack in stacks)
    assert all(int(spent) > 0 for spent in stacks.values())
    assert not any("unstarve/" in stack for stack in stacks)
    project.unstarve("report", "p.unstarve", "--tensorboard", "logs")
    project.unstarve("report", "p.unstarve", "--tensorboard", "logs")
    (kept,) = (project.folder / "logs").glob("p.*.pt.trace.json.gz")
    assert kept.read_bytes() == (project.folder / "p.trace.json.gz").read_bytes()


def test_windows_that_cannot_be_are_said_to_be_missing(project) -> None:
    project.write("train.py", TRAIN)
    done = project.unstarve("run", "-o", "p.unstarve", "--profile=50,1,3", "train.py")
    assert done.returncode == 0
    assert "nothing was profiled: training ended before step 51" in " ".join(done.stderr.split())
    assert not list(project.folder.glob("*.trace.json*"))
    own = "with torch.profiler.profile():\n" + "\n".join("    " + line for line in TRAIN.splitlines()[3:])
    project.write("own.py", "\n".join([*TRAIN.splitlines()[:3], own]))
    done = project.unstarve("run", "-o", "o.unstarve", "--profile", "own.py")
    assert done.returncode == 0
    assert "the script runs torch.profiler itself" in " ".join(done.stderr.split())


@pytest.mark.parametrize("window", ["a", "1,2,3,4,5", "5,1,0", "5,1,3,0", "-1"])
def test_a_window_of_the_wrong_form_is_refused(project, window: str) -> None:
    project.write("train.py", TRAIN)
    done = project.unstarve("run", f"--profile={window}", "train.py")
    assert done.returncode == 2
    assert "--profile" in done.stderr
