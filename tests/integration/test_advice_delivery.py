"""Advice on everything but samples, followed as printed: the same batches, and the cause is gone."""

from __future__ import annotations

import dataclasses

import pytest

from pasted import advice_in, pasted
from unstarve.advise.all_rules import Rule
from unstarve.advise.loader_call import code_for
from unstarve.advise.proposal import Proposal
from unstarve.advise.rules import batch_delivery, batch_timing, worker_count
from unstarve.api import diagnose, load_run
from unstarve.model import Cause

BEGIN = """
import hashlib, time
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

def show(batch):
    fields = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, list) else [batch]
    print(hashlib.sha1(b"".join(field.numpy().tobytes() for field in fields)).hexdigest())

def slow_start(worker):
    time.sleep(0.4)
"""

MANY_TENSORS = f"""
{BEGIN}
class Fields(Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, index):
        return {{f"field{{number}}": torch.full((8,), index + number) for number in range(100)}}

if __name__ == "__main__":
    loader = DataLoader(Fields(), batch_size=2, num_workers=1)
    for batch in loader:
        show(batch)
"""


def code_of(project, rule: Rule, cause: Cause) -> str:
    """The code for what a rule proposes for the recorded run, whatever its gain is predicted to be.

    On a busy machine another cause may come first, so that this one is taken as found.
    """
    recorded = diagnose(load_run(project.folder / "run.unstarve"))
    verdict = dataclasses.replace(recorded.verdict, cause=cause)
    recorded = dataclasses.replace(recorded, verdict=verdict, waits={cause: 1.0})
    found = rule(recorded)
    assert isinstance(found, Proposal)
    return code_for(recorded.loaders[0], found.edit)


@pytest.fixture(scope="module")
def many_tensors(shared_project):
    shared_project.write("tensors.py", MANY_TENSORS)
    return shared_project.record("tensors.py"), shared_project.python("tensors.py").stdout


def test_a_costly_hand_off_goes_through_reused_memory(shared_project, many_tensors) -> None:
    before, batches = many_tensors
    one = advice_in(before, "ring-engine")
    shared_project.write("ring.py", pasted(MANY_TENSORS, before, one["code"]))
    assert shared_project.python("ring.py").stdout == batches
    after = shared_project.record("ring.py")
    assert after["loaders"][0]["config"]["engine"] == "ring"
    assert after["demand"]["handoff_s"] < before["demand"]["handoff_s"] / 2


def test_the_same_engine_runs_the_script_as_it_is(shared_project, many_tensors) -> None:
    before, batches = many_tensors
    one = advice_in(before, "ring-engine")
    assert one["command"] == "unstarve run --engine auto tensors.py"
    done = shared_project.call("bash", "-c", one["command"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(batches)
    assert "engine ring" in done.stdout + done.stderr


def test_batches_that_are_cheaper_to_make_than_to_send_need_no_workers(shared_project, many_tensors) -> None:
    before, batches = many_tensors
    one = advice_in(before, "no-workers")
    shared_project.write("alone.py", pasted(MANY_TENSORS, before, one["code"]))
    assert shared_project.python("alone.py").stdout == batches
    assert "handoff" not in shared_project.record("alone.py")["waits"]


SHORT_EPOCHS = f"""
{BEGIN}
class Rows(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.full((4,), index)

if __name__ == "__main__":
    rows = ROWS
    loader = DataLoader(rows, batch_size=4, num_workers=2, worker_init_fn=slow_start)
    for epoch in range(8):
        for batch in loader:
            show(batch)
"""


@pytest.mark.parametrize(
    ("rows", "id"),
    [("Rows()", "persistent-workers"), ("TensorDataset(torch.arange(24))", "no-workers-to-start")],
)
def test_workers_that_every_epoch_starts_anew(project, rows: str, id: str) -> None:
    script = SHORT_EPOCHS.replace("ROWS", rows)
    project.write("train.py", script)
    before = project.record("train.py")
    one = advice_in(before, id)
    project.write("changed.py", pasted(script, before, one["code"]))
    assert project.python("changed.py").stdout == project.python("train.py").stdout
    after = project.record("changed.py")
    assert after["waits"].get("startup", 0.0) < before["waits"]["startup"] / 2


LATE = f"""
{BEGIN}
class Uneven(Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, index):
        time.sleep(1.0 if index % 20 == 9 else 0.01)
        return torch.full((4,), index)

if __name__ == "__main__":
    loader = DataLoader(Uneven(), batch_size=1, num_workers=4)
    for batch in loader:
        show(batch)
        time.sleep(0.05)
"""


def test_late_batches_hold_nobody_back_in_any_order(project) -> None:
    project.write("train.py", LATE)
    before = project.record("train.py")
    one = advice_in(before, "any-order")
    assert one["note"] == "The order of batches will then vary between runs."
    project.write("changed.py", pasted(LATE, before, one["code"]))
    changed, was = (project.python(name).stdout.splitlines() for name in ("changed.py", "train.py"))
    assert changed != was
    assert sorted(changed) == sorted(was)
    after = project.record("changed.py")
    assert after["waits"].get("order", 0.0) < before["waits"]["order"] / 2


def test_deeper_queues_bridge_late_batches(project) -> None:
    project.write("train.py", LATE)
    before = project.record("train.py")
    code = code_of(project, batch_timing.deeper_prefetch, Cause.ORDER)
    project.write("changed.py", pasted(LATE, before, code))
    assert project.python("changed.py").stdout == project.python("train.py").stdout
    after = project.record("changed.py")
    assert after["loaders"][0]["config"]["prefetch_factor"] == 4
    assert after["waits"].get("order", 0.0) < 0.8 * before["waits"]["order"]


CROWD = f"""
{BEGIN}
import os

class Busy(Dataset):
    def __len__(self):
        return 240

    def __getitem__(self, index):
        until = time.thread_time() + 0.01
        while time.thread_time() < until:
            pass
        return torch.full((4,), index)

if __name__ == "__main__":
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    loader = DataLoader(Busy(), batch_size=4, num_workers=10)
    for batch in loader:
        show(batch)
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
"""


@pytest.mark.filterwarnings("ignore")
def test_ten_workers_on_two_cores_become_one_per_core(project) -> None:
    """The gain is the model's to judge: it may say that fewer workers are as fast, and then reject them."""
    project.write("train.py", CROWD)
    before = project.record("train.py")
    code = code_of(project, worker_count.fewer_workers, Cause.CONTENTION)
    project.write("changed.py", pasted(CROWD, before, code))
    assert project.python("changed.py").stdout == project.python("train.py").stdout
    after = project.record("changed.py")
    assert after["loaders"][0]["config"]["num_workers"] == 2


THREADED = f"""
{BEGIN}
import os

class Projected(Dataset):
    weights = np.full((400, 400), 1 / 400)

    def __len__(self):
        return 120

    def __getitem__(self, index):
        x = np.full((400, 400), float(index))
        for _ in range(6):
            x = self.weights @ x
        return torch.from_numpy(x[0].round())

if __name__ == "__main__":
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    loader = DataLoader(Projected(), batch_size=4, num_workers=2)
    for batch in loader:
        show(batch)
"""


def test_workers_with_threads_of_their_own_compute_with_one(project) -> None:
    """Whether the rule speaks depends on how many other processes want the cores: its settings must work."""
    project.write("train.py", THREADED)
    one_thread = dict(word.split("=") for word in worker_count.ONE_THREAD.split())
    assert project.python("train.py", env=one_thread).stdout == project.python("train.py").stdout
    before, after = project.record("train.py"), project.record("train.py", env=one_thread)
    if before["demand"]["helped_s"] == 0:
        pytest.skip("other processes took the cores")
    assert after["demand"]["helped_s"] < before["demand"]["helped_s"] / 4


LARGE_BATCHES = f"""
{BEGIN}
import resource, sys

class Large(Dataset):
    row = torch.arange(1 << 18)

    def __len__(self):
        return 32 * 40

    def __getitem__(self, index):
        return self.row

if __name__ == "__main__":
    loader = DataLoader(Large(), batch_size=32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for batch in loader:
        print(int(batch[:, -1].sum()))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, file=sys.stderr)
"""


def test_memory_that_malloc_keeps_is_not_mapped_anew(project) -> None:
    project.write("train.py", LARGE_BATCHES)
    project.record("train.py")
    recorded = diagnose(load_run(project.folder / "run.unstarve"))
    assert recorded.demand is not None
    # Whether memory is slow enough for the advice depends on the machine; what the command does, does not.
    slow = dataclasses.replace(recorded, demand=dataclasses.replace(recorded.demand, collate_s=1.0))
    found = batch_delivery.keep_large_memory(slow)
    assert isinstance(found, Proposal)
    was = project.python("train.py")
    now = project.call("bash", "-c", found.command)
    assert now.stdout == was.stdout
    assert int(now.stderr) < 0.7 * int(was.stderr)
