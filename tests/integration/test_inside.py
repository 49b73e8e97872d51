"""Every kind of loader is seen from the inside: each batch is matched to the work that made it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import unstarve
from unstarve.analyze.batch_production import EpochProduction, productions, workers_of
from unstarve.model import Process, Run

MANY = """
import sys, time
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler
from torch.utils.data import Subset, get_worker_info
from torchdata.stateful_dataloader import StatefulDataLoader

class Squares(Dataset):
    def __init__(self, count=24):
        self.count = count
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        if index == 13:
            time.sleep(0.3)
        return torch.tensor(float(index)) ** 2

class Batched(Squares):
    def __getitems__(self, indices):
        return [self[index] for index in indices]

class Answering(Squares):
    '''Has an answer for every name but those of methods it lacks.'''
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None

class Ragged(IterableDataset):
    '''The second worker ends long before the first.'''
    def __iter__(self):
        info = get_worker_info()
        count = 24 if info is None else (28, 4)[info.id]
        for number in range(count):
            yield torch.tensor(float(number))

def gather(samples):
    return torch.stack(samples).sum(0, keepdim=True).expand(len(samples)).clone()

def loaders(workers):
    two = dict(num_workers=2) if workers else {}
    plain = DataLoader(Squares(), batch_size=4, **two)
    any_order = DataLoader(Squares(), batch_size=4, in_order=False, **two)
    itemized = DataLoader(Batched(), batch_size=4, **two)
    subset = DataLoader(Subset(Batched(), range(0, 24, 2)), batch_size=4, **two)
    answering = DataLoader(Answering(), batch_size=4, **two)
    collated = DataLoader(Squares(), batch_size=4, collate_fn=gather, **two)
    single = DataLoader(Squares(12), batch_size=None, **two)
    custom = DataLoader(Squares(), batch_sampler=BatchSampler(SequentialSampler(range(24)), 3, False), **two)
    streamed = DataLoader(Ragged(), batch_size=4, **two)
    stateful = StatefulDataLoader(Squares(), batch_size=4, **two)
    stateful_stream = StatefulDataLoader(Ragged(), batch_size=4, **two)
    return dict(locals())

if __name__ == "__main__":
    made = loaders(workers=sys.argv[1] == "workers")
    made.pop("workers"), made.pop("two")
    for name, loader in made.items():
        batches = list(loader)
        print(name, len(batches), sum(float(batch.sum()) for batch in batches))
    for first, second in zip(made["plain"], made["custom"]):  # side by side
        pass
"""

STARTED = """
import json, os, sys, time
from pathlib import Path
import torch
from torch.utils.data import DataLoader, Dataset
from unstarve.record.run_reader import read_run

class Slow(Dataset):
    def __len__(self):
        return 24 * 2
    def __getitem__(self, index):
        decode(0.008)  # longer than Python's switch interval: shorter ones hide behind torch's calls
        return torch.zeros(4)

def decode(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass

if __name__ == "__main__":
    context = dict(multiprocessing_context=sys.argv[1], persistent_workers=True)
    loader = DataLoader(Slow(), batch_size=2, num_workers=2, **context)
    for epoch in range(2):
        for batch in loader:
            time.sleep(0.001)
    # Workers that persist are ended by a signal: the last moment before it is not recorded.
    run = Path(json.loads(os.environ["UNSTARVE_LAUNCH"])["parts"].removesuffix(".parts"))
    while sum(len(process.sents) for process in read_run(run).processes) < 48:
        time.sleep(0.05)
"""


def read(project: Any) -> tuple[Run, Process, dict[tuple[int, int], EpochProduction]]:
    run = unstarve.load_run(project.folder / "run.unstarve")
    (process,) = [p for p in run.processes if not p.worker]
    return run, process, productions(process, workers_of(run.processes))


def assert_every_batch_is_matched(process: Process, made: dict[tuple[int, int], EpochProduction]) -> None:
    """Each delivered batch has its work, done before it was delivered; with workers, its hand-off too."""
    names = {loader.id: loader.name for loader in process.loaders}
    assert process.batches
    for batch in process.batches:
        production = made[batch.loader, batch.epoch]
        where = (names[batch.loader], batch.epoch, batch.position)
        assert batch.task in production.by_task, where
        one = production.by_task[batch.task]
        assert one.work.begin_ns <= one.work.collate_ns <= one.work.done_ns <= batch.got_ns, where
        if production.workers:
            assert one.sent is not None, where
            assert one.received is not None, where
            assert one.work.done_ns <= one.sent.end_ns <= one.received.ready_ns <= batch.got_ns, where
    for (loader, epoch), production in made.items():
        tasks = [b.task for b in process.batches if (b.loader, b.epoch) == (loader, epoch)]
        assert len(set(tasks)) == len(tasks) <= len(production.by_task), names[loader]


def assert_books_balance(report: dict[str, Any]) -> None:
    seconds = sum(line["seconds"] for line in [*report["budget"], *report["outside"]])
    assert seconds == pytest.approx(report["run"]["wall_s"], rel=0.01)
    assert report["lost"] == []


@pytest.mark.parametrize("workers", ["alone", "workers"])
def test_every_batch_of_every_kind_of_loader_is_matched_to_its_work(project, workers: str) -> None:
    script = project.write("many.py", MANY)
    plain = project.python(script, workers)
    assert plain.returncode == 0, plain.stderr
    recorded = project.unstarve("run", "-q", "-o", "run.unstarve", script, workers)
    assert (recorded.returncode, recorded.stdout) == (0, plain.stdout), recorded.stderr
    report = project.report()
    run, process, made = read(project)
    names = [line.split()[0] for line in plain.stdout.splitlines()]
    by_name = dict(zip(names, (loader.id for loader in process.loaders), strict=True))
    assert_every_batch_is_matched(process, made)
    assert_books_balance(report)
    assert all(production.workers == (2 if workers == "workers" else 0) for production in made.values())
    # The sample that is slow is named where samples are asked for one by one.
    for name in ("plain", "any_order", "answering", "collated", "single", "custom", "stateful"):
        slowest = max(made[by_name[name], 0].by_task.values(), key=lambda one: one.work.slow_ns)
        assert slowest.work.slow_index == 13 or name == "single", name
    assert 13 in [sample["index"] for sample in report["slow_samples"]]
    assert {one.work.slow_index for one in made[by_name["itemized"], 0].by_task.values()} == {None}
    assert {one.work.samples for one in made[by_name["custom"], 0].by_task.values()} == {3}
    if workers == "workers":
        ragged = made[by_name["streamed"], 0].by_worker
        assert [len(works) for works in ragged] == [7, 1]
    assert run.lost == ()


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_persistent_workers_are_followed_however_they_start(project, how: str) -> None:
    report = project.record(project.write("train.py", STARTED), how)
    run, process, made = read(project)
    assert_every_batch_is_matched(process, made)
    assert_books_balance(report)
    assert [key[1] for key in sorted(made)] == [0, 1]
    assert len([p for p in run.processes if p.worker]) == 2
    cpu_ns = sum(one.work.cpu_ns for production in made.values() for one in production.by_task.values())
    assert cpu_ns >= 2 * 48 * 8_000_000
    # Short Python code is often seen only where it next lets go of the interpreter lock: in its caller.
    named = {(Path(cost["file"]).name, cost["where"]) for cost in report["functions"]}
    assert ("train.py", "cpu") in named


MISSING = """
import sys, runpy
import unstarve.collect.counters as counters
counters._open = lambda path: -1
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

SLEEPY = """
import time, torch
from torch.utils.data import DataLoader, Dataset

class Sleepy(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        time.sleep(0.05)
        return torch.zeros(4)

for batch in DataLoader(Sleepy(), batch_size=1, num_workers=1):
    pass
"""


def test_without_the_kernels_counters_the_report_says_unknown(project) -> None:
    wrapper, script = project.write("without.py", MISSING), project.write("train.py", SLEEPY)
    seen = project.record(script)
    assert seen["verdict"]["cause"] == "remote"
    unseen = project.record(wrapper, script)
    _, process, made = read(project)
    assert_every_batch_is_matched(process, made)
    assert_books_balance(unseen)
    assert {one.work.storage_bytes for one in made[0, 0].by_task.values()} == {None}
    assert unseen["verdict"]["state"] == "starved"
    assert unseen["verdict"]["cause"] == "unknown"


EPOCHS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
for epoch in range(10):
    for batch in DataLoader(TensorDataset(torch.zeros(16, 2)), batch_size=2, num_workers=2):
        pass
"""


def test_many_epochs_of_new_workers_stay_small(project) -> None:
    project.record(project.write("train.py", EPOCHS))
    run, process, made = read(project)
    assert len([p for p in run.processes if p.worker]) == 20
    assert_every_batch_is_matched(process, made)
    assert (project.folder / "run.unstarve").stat().st_size < 20 * 20_000


def test_slow_samples_are_named_by_their_files(project) -> None:
    script = project.write(
        "train.py",
        """
        import sys
        from pathlib import Path
        from data import *
        from torch.utils.data import Subset

        class Files(Dataset):
            def __init__(self):
                self.paths = [f"images/{n}.bin" for n in range(80)]
            def __len__(self):
                return 80
            def __getitem__(self, index):
                time.sleep(0.5 if index == 40 else 0.001)
                return torch.zeros(2)

        class Opening(Files):
            def __init__(self):
                self.root = Path("images")
            def __getitem__(self, index):
                (self.root / f"{index}.bin").read_bytes()
                return super().__getitem__(index)

        if __name__ == "__main__":
            Path("images").mkdir(exist_ok=True)
            for n in range(80):
                Path(f"images/{n}.bin").write_bytes(b"0123")
            dataset = {"listed": Subset(Files(), range(79, -1, -1)), "opened": Opening()}[sys.argv[1]]
            for batch in DataLoader(dataset, batch_size=4, num_workers=int(sys.argv[2])):
                pass
        """,
    )
    for kind, index in (("listed", 39), ("opened", 40)):
        for workers in ("0", "2"):
            report = project.record(script, kind, workers)
            slowest = report["slow_samples"][0]
            assert (slowest["index"], slowest["file"]) == (index, "images/40.bin")
    shown = project.unstarve("report", "run.unstarve").stdout
    assert "sample 40  images/40.bin" in shown
