"""The training of the trace lab: one worker is late, one step has a pause, one phase is large, as drawn."""

from __future__ import annotations

import random
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from unstarve.labs.started import started_in

WORKERS = 4
STEPS = 128
PHASES = ("forward", "backward", "optimizer")
PAUSES = ("save checkpoint", "write images", "collect garbage", "validate")
REPAIRS = ("worker", "pause", "phase")
_BATCH = 4
_SAMPLE_S = 0.002
_LATE_SAMPLE_S = 0.03
_LIGHT = 1
_HEAVY = 10


@dataclass(frozen=True, slots=True)
class Drawn:
    """What the seed decides."""

    late_worker: int
    pause_step: int
    """Number of the batch, from 0, after whose optimizer step training pauses."""
    pause_s: float
    pause_name: str
    largest_phase: str
    repaired: str
    """What the fast version no longer has: the late ``worker``, the ``pause`` or the large ``phase``."""


def drawn(seed: int) -> Drawn:
    """The draw of this seed."""
    chance = random.Random(f"trace:{seed}")
    return Drawn(
        chance.randrange(WORKERS),
        chance.randrange(30, STEPS - 30),
        chance.choice((0.3, 0.4, 0.55, 0.75)),
        chance.choice(PAUSES),
        chance.choice(PHASES),
        chance.choice(REPAIRS),
    )


def train(folder: Path | str, *, fast: bool) -> None:
    """Train for one epoch; `fast` has one thing repaired."""
    draw = drawn(started_in(Path(folder)).seed)
    repaired = draw.repaired if fast else ""
    phase = "" if repaired == "phase" else draw.largest_phase
    work = {name: _Work(_HEAVY if name == phase else _LIGHT) for name in PHASES}
    model = _Model(work["forward"], work["backward"])
    optimizer = _Optimizer(model.parameters(), work["optimizer"])
    samples = _Samples(None if repaired == "worker" else draw.late_worker)
    # Workers that sleep may be more than the cores.
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    for number, batch in enumerate(DataLoader(samples, batch_size=_BATCH, num_workers=WORKERS)):
        loss = model(batch.to(_device())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number == draw.pause_step and repaired != "pause":
            with torch.profiler.record_function(draw.pause_name):
                time.sleep(draw.pause_s)


class _Samples(Dataset[torch.Tensor]):
    def __init__(self, late_worker: int | None) -> None:
        self._late_worker = late_worker

    def __len__(self) -> int:
        return STEPS * _BATCH

    def __getitem__(self, index: int) -> torch.Tensor:
        worker = get_worker_info()
        late = worker is not None and worker.id == self._late_worker
        time.sleep(_LATE_SAMPLE_S if late else _SAMPLE_S)  # a request to a server; one answers late
        return torch.full((256,), float(index))


class _Work:
    """So many multiplications, on the GPU if there is one."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._matrix = torch.eye(384, device=_device())

    def __call__(self) -> None:
        with torch.no_grad():
            value = self._matrix
            for _ in range(self._rounds):
                value = value @ self._matrix


class _WorkBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, work: _Work) -> torch.Tensor:
        ctx.work = work
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.work()
        return gradients[0], None


class _Model(torch.nn.Module):
    def __init__(self, forward: _Work, backward: _Work) -> None:
        super().__init__()
        self._linear = torch.nn.Linear(256, 64, device=_device())
        self._works = forward, backward

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        self._works[0]()
        value = self._linear(batch)
        result: torch.Tensor = _WorkBackward.apply(value, self._works[1])  # type: ignore[no-untyped-call]  # torch
        return result


class _Optimizer(torch.optim.SGD):
    def __init__(self, parameters: Any, work: _Work) -> None:
        super().__init__(parameters, lr=1e-3)
        self._work = work

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # there is no closure here
        self._work()
        super().step(closure)


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
