"""What each rank of a planted case runs: ``torchrun … bench/rank_training.py CASE``; see `rank_zoo`."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from rank_zoo import CASES, STEPS, RankCase
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data.distributed import DistributedSampler

WIDTH = 64
BATCH = 4


class Planted(Dataset[torch.Tensor]):
    """Samples of some length; fetching a batch sleeps as the case says."""

    def __init__(self, case: RankCase, rank: int, samples: int) -> None:
        self.case, self.rank, self.samples = case, rank, samples

    def __len__(self) -> int:
        return self.samples

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        step = self.samples_before // len(indices)
        self.samples_before += len(indices)
        time.sleep(self.case.data_s(self.rank, step))
        rows = self.case.rows(self.rank, step)
        return [torch.full((rows, WIDTH), float(index)) / self.samples for index in indices]

    samples_before = 0


class Slow(torch.autograd.Function):
    """Takes a while to differentiate."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        time.sleep(ctx.seconds)
        return gradients[0], None


class Uneven(Sampler[int]):
    """More samples for rank 0."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __iter__(self) -> Iterator[int]:
        return iter(random.Random(self.rank).sample(range(STEPS * BATCH), len(self)))

    def __len__(self) -> int:
        return (STEPS - 10 * bool(self.rank)) * BATCH


@contextlib.contextmanager
def neighbour(core: int) -> Iterator[None]:
    """A process that keeps a core busy, which this one then shares."""
    os.sched_setaffinity(0, {core})
    code = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    busy = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield
    finally:
        busy.kill()


def validate(seconds: float) -> None:
    """A short pass over other data."""
    with torch.no_grad():
        for _ in DataLoader(range(10)):  # type: ignore[arg-type]  # anything with a length is a dataset to torch
            time.sleep(seconds / 10)


def train(case: RankCase, rank: int, ranks: int) -> None:
    data = Planted(case, rank, STEPS * BATCH * ranks // case.epochs)
    sampler: Sampler[int] = DistributedSampler(data)
    if case.split == "not":
        sampler = DistributedSampler(data, num_replicas=1, rank=0)
    if case.split == "uneven":
        sampler = Uneven(rank)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler, num_workers=case.workers)
    model = DistributedDataParallel(torch.nn.Linear(WIDTH, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    joining = model.join() if case.split == "uneven" else contextlib.nullcontext()
    with joining:
        for epoch in range(case.epochs):
            if case.split == "set_epoch":
                sampler.set_epoch(epoch)  # type: ignore[attr-defined]  # it is torch's
            for batch in loader:
                until = time.thread_time() + case.cpu_s
                while time.thread_time() < until:
                    pass
                time.sleep(0.05 + case.forward_s(rank, step))
                loss = Slow.apply(model(batch), case.backward_s(rank, step)).mean()  # type: ignore[no-untyped-call]  # torch's
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(case.after_s(rank, step))
                if seconds := case.validation_s(rank, step):
                    validate(seconds)
                step += 1
                if step == STEPS:
                    break


def main() -> None:
    case = next(one for one in CASES if one.name == sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if case.nodes > 1:  # two machines on one
        name = f"node{rank * case.nodes // ranks}"
        socket.gethostname = lambda: name
    cores = sorted(os.sched_getaffinity(0))
    with neighbour(cores[rank % len(cores)]) if rank == case.crowded else contextlib.nullcontext():
        train(case, rank, ranks)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
