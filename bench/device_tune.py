"""Tuning with batches that go to a GPU from pinned memory: how good the settings found are.

A small network trains on a CUDA device from datasets that are slow in one way each, with pinned memory and
non-blocking copies. As in bench/tune.py a loader tunes itself during training; then several settings,
including the user's own, take turns with the tuned loader. The losses of a tuned training are compared with
those of a plain one, number by number. It is a measurement, not a gate: the exit code is always 0.

    python bench/device_tune.py [--rounds N] [--seconds S]
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler
from zoo.data import Items
from zoo.work import burn

import unstarve
from unstarve.model import LoaderSettings

OTHERS = tuple(LoaderSettings(count, 2) if count else LoaderSettings(0) for count in (0, 1, 2, 4, 8, 12, 16))
_MOST_TUNING_S = 90.0
_FEATURES = 3 * 64 * 64


@dataclass(frozen=True)
class Sample:
    """A sample of an image's size that takes a given time to load."""

    cpu_ms: float = 0.0
    sleep_ms: float = 0.0

    def __call__(self, index: int) -> torch.Tensor:
        if self.sleep_ms:
            time.sleep(self.sleep_ms / 1e3)
        if self.cpu_ms:
            burn(self.cpu_ms)
        return torch.full((_FEATURES,), (index % 97) / 97)


@dataclass(frozen=True)
class Work:
    """A training: how samples are loaded, and the user's own settings."""

    name: str
    load: Sample
    own: LoaderSettings

    def loader(self, settings: LoaderSettings, samples: int = 10**9, seed: int = 0) -> DataLoader[Any]:
        data = Items(1_000_000, self.load)
        order = RandomSampler(data, True, samples, generator=torch.Generator().manual_seed(seed))
        return DataLoader(
            data,
            batch_size=64,
            sampler=order,
            num_workers=settings.num_workers,
            prefetch_factor=settings.prefetch_factor,
            pin_memory=True,
        )


WORKS = (
    Work("cpu", Sample(cpu_ms=0.4), LoaderSettings(2, 2)),
    Work("latency", Sample(sleep_ms=4), LoaderSettings(2, 2)),
    Work("light", Sample(), LoaderSettings(4, 2)),
)


def trainer() -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a training step; the network starts with the same weights each time."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(_FEATURES, 2048), nn.ReLU(), nn.Linear(2048, 10)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step(batch: torch.Tensor) -> torch.Tensor:
        assert batch.is_pinned()
        loss = net(batch.to("cuda", non_blocking=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def rate(batches: Iterator[Any], step: Callable[..., Any], settings: LoaderSettings, seconds: float) -> float:
    """Return batches per second, once the pipeline is full."""
    for _ in range(settings.in_flight + max(settings.num_workers, 4)):
        step(next(batches))
    torch.cuda.synchronize()
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds or count % max(settings.num_workers, 1):
        step(next(batches))
        count += 1
    torch.cuda.synchronize()
    return count / (time.perf_counter() - begun)


def judge(work: Work, rounds: int, seconds: float) -> None:
    """Print a line."""
    step = trainer()
    loader = unstarve.autotune(work.loader(work.own), budget_s=_MOST_TUNING_S)
    batches, begun = iter(loader), time.perf_counter()
    while not loader.tuning.settled and time.perf_counter() - begun < _MOST_TUNING_S:
        step(next(batches))
    took_s, chosen = time.perf_counter() - begun, loader.tuning.chosen
    rates: dict[LoaderSettings | None, list[float]] = {one: [] for one in (None, *OTHERS)}
    for _ in range(rounds):
        for one, seen in rates.items():
            source = batches if one is None else iter(work.loader(one))
            seen.append(rate(source, step, chosen if one is None else one, seconds))
    usual = {one: statistics.median(seen) for one, seen in rates.items()}
    best = max(OTHERS, key=lambda one: usual[one])
    print(
        f"{work.name:<10}{_brief(work.own):>6}{_brief(chosen):>7}{_brief(best):>7}"
        f"{usual[None] / usual[best]:>9.2f}{usual[None] / usual[work.own]:>8.2f}{took_s:>9.1f}"
        f"   {loader.tuning.reason}",
        flush=True,
    )


def same_losses(work: Work, batches: int = 600) -> bool:
    """Whether training sees the same batches, in the same order, while its loader is being tuned."""
    losses = []
    for tuned in (False, True):
        loader: Any = work.loader(work.own, samples=batches * 64)
        step = trainer()
        losses.append(
            torch.stack([step(batch) for batch in (unstarve.autotune(loader) if tuned else loader)])
        )
    return torch.equal(*losses)


def _brief(settings: LoaderSettings) -> str:
    return f"{settings.num_workers}×{settings.prefetch_factor or 0}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    torch.use_deterministic_algorithms(True, warn_only=True)
    print(f"{torch.cuda.get_device_name()}; settings as workers × prefetch, pinned\n")
    print("workload     own  tuned   best   ÷ best   ÷ own  took, s")
    for work in WORKS:
        judge(work, options.rounds, options.seconds)
    print()
    for work in WORKS:
        print(f"{work.name}: losses {'are the same' if same_losses(work) else 'DIFFER'} while tuning")


if __name__ == "__main__":
    main()
