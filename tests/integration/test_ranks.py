"""Several training processes of one command make one report."""

from __future__ import annotations

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
