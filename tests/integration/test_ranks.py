"""Several training processes of one command make one report."""

from __future__ import annotations

import subprocess
import sys

import pytest

RANK = """
import os, sys
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler
from data import *

dist.init_process_group("gloo")
data = Numbers(320)
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False), num_workers=1)
total = torch.zeros(1)
for x, index in loader:
    total += x.sum()
    dist.all_reduce(torch.ones(1))
dist.all_reduce(total)
if dist.get_rank() == 0:
    print("total", int(total))
dist.destroy_process_group()
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("code", [0, 5])
def test_torchrun_ranks_are_merged(project, code: int) -> None:
    project.write("train.py", RANK)
    words = [
        "--nproc-per-node",
        "2",
        "--master-port",
        "0",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "localhost:0",
    ]
    done = project.unstarve("run", "-o", "run.unstarve", "torchrun", *words, "train.py", str(code))
    assert (done.returncode != 0) == bool(code), done.stderr
    assert done.stdout == f"total {4 * sum(range(320))}\n"
    report = project.report()
    assert report["run"]["ranks"] == 2
    assert report["run"]["steps"] == 40
    (loader,) = report["loaders"]
    assert (loader["steps"], loader["epochs"], loader["samples"]) == (80, 2, 320)
    total = sum(line["seconds"] for line in [*report["budget"], *report["outside"]])
    assert total == pytest.approx(report["run"]["wall_s"], rel=0.01)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_training_in_a_process_of_its_own_is_recorded_to_its_end(project, start: str) -> None:
    project.write(
        "train.py",
        """
        import multiprocessing, sys
        from data import *

        def train():
            for batch in DataLoader(Numbers(120), batch_size=4):
                pass

        if __name__ == "__main__":
            process = multiprocessing.get_context(sys.argv[1]).Process(target=train)
            process.start()
            process.join()
            sys.exit(process.exitcode)
        """,
    )
    report = project.record("train.py", start)
    assert report["run"]["steps"] == 30
    assert not report["run"]["cut_short"]
    assert report["lost"] == []


def test_a_process_that_only_evaluates_is_not_taken_for_the_training(project) -> None:
    project.write(
        "train.py",
        """
        import subprocess, sys
        from data import *

        if len(sys.argv) > 1:
            for batch in DataLoader(Numbers(8), batch_size=4):
                pass
        else:
            for number, batch in enumerate(DataLoader(Numbers(160), batch_size=4)):
                time.sleep(0.001)
                if number == 20:
                    subprocess.run([sys.executable, "train.py", "evaluate"], check=True)
        """,
    )
    report = project.record("train.py")
    assert report["run"]["steps"] == 40
    assert report["run"]["ranks"] == 1
    assert "another process iterated loaders" in report["lost"][0]


SPAWNED = """
import os
import torch.distributed as dist
import torch.multiprocessing as mp
from data import *

def train(rank):
    dist.init_process_group("gloo", init_method="file://" + os.path.abspath("meet"), rank=rank, world_size=2)
    for x, index in DataLoader(Numbers(160), batch_size=4):
        time.sleep(0.05 * rank)
        dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(train, nprocs=2)
"""


def test_ranks_that_no_launcher_numbered_are_told_by_their_process_group(project) -> None:
    """The group is gone when the processes end."""
    project.write("train.py", SPAWNED)
    report = project.record("train.py")
    assert (report["run"]["ranks"], report["ranks"]["late"], report["lost"]) == (2, [1], [])


PARALLEL = """
import os, sys
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from data import *
from unstarve import CachedDataset

torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
rank, kind = dist.get_rank(), sys.argv[1]

class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.25 * (rank == 1 and kind != "fully_shard"))
        return gradient

class Read(Dataset):
    def __len__(self):
        return 80

    def __getitem__(self, index):
        with open(f"read-{rank}", "a") as log:
            print(index, file=log)
        return torch.full((64,), index / 80)

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 1))
if kind == "fsdp":
    model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    data = CachedDataset(Read(), cache_dir="cache")
elif kind == "fully_shard":
    model = fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    data = Read()
else:
    model = DistributedDataParallel(model)
    data = Read()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0.0
for epoch in range(2):
    for batch in DataLoader(data, batch_size=5):
        loss = Slow.apply(model(batch)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if kind == "fully_shard":
            time.sleep(0.25 * (rank == 1))
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # a functional collective
        optimizer.step()
        total += loss.item()
if rank == 0:
    print(f"{total:.17g}")
dist.barrier()  # else torch itself aborts now and then, when one rank has gone
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("kind", "ranks", "reason"),
    [("ddp", 2, "backward"), ("fsdp", 4, "backward"), ("fully_shard", 2, "after")],
)
def test_a_slow_rank_is_told_apart_from_those_that_wait_for_it(
    project, kind: str, ranks: int, reason: str
) -> None:
    project.write("train.py", PARALLEL)
    words = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "train.py", kind]
    done = project.unstarve("run", "-o", "run.unstarve", *words)
    assert done.returncode == 0, done.stderr
    report = project.report()
    told = report["ranks"]
    assert (told["arrivals"], told["pattern"], told["late"], told["reason"]) == (
        True,
        "fixed",
        [1],
        reason,
    )
    assert told["by_rank"][1]["blocked_ms"] < told["by_rank"][0]["blocked_ms"]
    assert report["lost"] == []
    if kind == "fsdp":  # the ranks have one copy of the cached samples, and share the work of filling it
        logs = [project.folder / f"read-{rank}" for rank in range(ranks)]
        reads = sum(len(log.read_text().split()) for log in logs if log.exists())
        assert reads <= 80 + 3 * ranks  # each rank looks at three samples to know the dataset
    else:
        alone = subprocess.run(
            [sys.executable, *words], cwd=project.folder, capture_output=True, text=True, check=True
        )
        assert alone.stdout == done.stdout
