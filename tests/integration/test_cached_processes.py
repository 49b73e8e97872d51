"""One copy for all workers and ranks, whatever happens to one of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from cached_ranks import Rank, ranks_in, reads, wait_for
from sample_datasets import Counted, collect_no_garbage, with_memory
from unstarve import CachedDataset

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes share memory on Linux")

MB = 1 << 20


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("fork", "tensor"),
        ("fork", "filled"),
        ("fork", "lazy"),
        ("spawn", "tensor"),
        ("spawn", "lazy"),
        ("forkserver", "lazy"),
    ],
)
def test_workers_share_one_copy(method: str, kind: str) -> None:
    source = Counted(40, size=MB // 16)  # 512 KB a sample
    if kind == "tensor":
        cached = CachedDataset((torch.stack([source[i][0] for i in range(40)]), torch.arange(40)))
        source.reads.fill_(1)
    else:
        cached = CachedDataset(source, fill="lazy" if kind == "lazy" else "now")
    loader = DataLoader(
        cached,
        batch_size=5,
        shuffle=True,
        num_workers=2 if (method, kind) == ("fork", "lazy") else 1,
        collate_fn=with_memory,
        multiprocessing_context=method,
        persistent_workers=True,
        worker_init_fn=collect_no_garbage,
    )
    for _ in range(3):
        batches, private = zip(*loader, strict=True)
        labels = torch.cat([batch[1] for batch in batches])
        assert sorted(labels.tolist()) == list(range(40))
        assert torch.equal(torch.cat([batch[0][:, 5] for batch in batches]), labels)
    assert max(private) - min(private) < 16 * MB  # of 20 MB of data
    assert source.reads.tolist() == [1] * 40
    assert int(cached[7][0][3]) == 7
    assert source.reads.tolist() == [1] * 40


# Ranks: processes that know nothing of each other but their environment.


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Rank]]:
    with ranks_in(tmp_path) as start:
        yield start


@pytest.mark.parametrize("arguments", [{}, {"fill": "lazy"}, {"budget": 0, "over_budget": "disk"}], ids=str)
def test_ranks_share_one_copy_and_the_work(
    tmp_path: Path, start: Callable[..., Rank], arguments: dict[str, Any]
) -> None:
    pair = [start(rank, 60, 0.002, **arguments, cache_dir=tmp_path / "cache") for rank in range(2)]
    for rank in pair:
        assert rank.answer() == "cached"
        assert rank.ask("right") is True
    assert pair[0].ask("inode") == pair[1].ask("inode")
    counted = reads(tmp_path)
    assert sorted(counted) == list(range(60))
    assert counted.total() <= 60 + 3  # each rank looks at three to know which dataset it is
    assert [rank.end() for rank in pair] == [0, 0]


def test_the_others_go_on_when_the_rank_that_owns_the_memory_is_killed(
    tmp_path: Path, start: Callable[..., Rank]
) -> None:
    owner = start(0, 150, 0.01)
    wait_for(lambda: reads(tmp_path).total() > 5)
    other = start(1, 150, 0.01)
    wait_for(lambda: reads(tmp_path)[80] > 0)  # it has begun, in the second half
    os.kill(owner.process.pid or 0, signal.SIGKILL)
    assert other.answer() == "cached"
    assert other.ask("right") is True
    late = start(0, 150, 0.01)
    assert late.answer() == "cached"
    assert late.ask("right") is True
    assert other.end() == late.end() == 0


def test_ranks_that_hold_different_data_do_not_share(start: Callable[..., Rank]) -> None:
    pair = [start(0, 30), start(1, 31)]
    for rank in pair:
        assert rank.answer() == "cached"
        assert rank.ask("right") is True
    assert pair[0].ask("inode") != pair[1].ask("inode")


def test_programs_that_were_started_apart_share_too(tmp_path: Path) -> None:
    program = """
import os, sys
from sample_datasets import Logged
from unstarve import CachedDataset
cached = CachedDataset(Logged(sys.argv[1], 50, 0.02))
print(sum(cached[i][1] for i in range(50)), os.fstat(cached._held._store.region.fd).st_ino, flush=True)
sys.stdin.read()
"""
    environment = {
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_PORT": str(os.getpid()),  # nobody opens it: it tells one training from another
        "PYTHONPATH": str(Path(__file__).parents[1] / "helpers"),
    }
    pair = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "log")],
            env=os.environ | environment | {"LOCAL_RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    lines = [each.stdout.readline() for each in pair if each.stdout is not None]
    for each in pair:
        each.communicate(timeout=180)
    assert lines[0] == lines[1]
    assert lines[0].startswith("1225 ")
    assert reads(tmp_path).total() <= 53


def test_four_ranks_of_torchrun_share_one_copy(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        """
import os, sys, time
from pathlib import Path
from sample_datasets import Logged
from unstarve import CachedDataset
folder = Path(sys.argv[1])
cached = CachedDataset(Logged(folder / "log", 80, 0.01))
found = sum(cached[i][1] for i in range(80)), os.fstat(cached._held._store.region.fd).st_ino
(folder / f"{os.environ['RANK']}.new").write_text(" ".join(map(str, found)))
(folder / f"{os.environ['RANK']}.new").rename(folder / f"{os.environ['RANK']}.rank")
while len(list(folder.glob("*.rank"))) < 4:  # else a region that is gone could have the number of another
    time.sleep(0.01)
"""
    )
    subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node=4",
            program,
            tmp_path,
        ],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "helpers")},
        check=True,
        timeout=180,
    )
    seen = [(tmp_path / f"{rank}.rank").read_text().split() for rank in range(4)]
    assert {total for total, _ in seen} == {"3160"}
    assert len({inode for _, inode in seen}) == 1
    counted = reads(tmp_path)
    assert sorted(counted) == list(range(80))
    assert counted.total() <= 80 + 3 * 3  # each rank looks at three to know which dataset it is


# What a program leaves behind that is stopped while it fills a file


def contents(folder: Path) -> list[str]:
    return sorted(path.suffix for path in folder.iterdir())


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path, start: Callable[..., Rank]) -> None:
    folder = tmp_path / "cache"
    rank = start(0, 1000, 0.01, budget=0, over_budget="disk", cache_dir=folder)
    wait_for(lambda: reads(tmp_path).total() > 10)
    assert contents(folder) == [".lock", ".partial"]
    os.kill(rank.process.pid or 0, signal.SIGINT)
    rank.process.join(180)
    assert rank.process.exitcode == 1
    assert contents(folder) == []


def test_a_killed_program_leaves_what_the_next_one_goes_on_with(
    tmp_path: Path, start: Callable[..., Rank]
) -> None:
    folder = tmp_path / "cache"
    arguments = {"budget": 0, "over_budget": "disk", "cache_dir": folder}
    killed = start(0, 100, 0.04, **arguments)
    wait_for(lambda: reads(tmp_path).total() > 10)
    killed.process.kill()
    killed.process.join()
    assert contents(folder) == [".lock", ".partial"]
    done = reads(tmp_path).total()

    following = start(0, 100, 0.04, **arguments)
    assert following.answer() == "cached"
    assert following.ask("right") is True
    assert contents(folder) == [".cache"]
    assert reads(tmp_path).total() <= 100 + 3 + 1  # its own look, and the one that was being read

    last = start(0, 100, 0.04, **arguments)
    assert last.answer() == "cached"
    assert last.ask("right") is True
    assert reads(tmp_path).total() <= 100 + 3 + 1 + 3
    assert following.end() == last.end() == 0
    assert done > 10
