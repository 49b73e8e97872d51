"""The training step of labs. Reports count it as the learner's code: its time is `compute`, not `host`."""

from __future__ import annotations

import time

import torch

from unstarve.labs.workload import Batch, joined


class Step:
    """A training step as real work: so many multiplications, on the GPU if there is one."""

    def __init__(self, milliseconds: float, rounds: int | None = None) -> None:
        """Take so long on this machine as it is now; with `rounds`, as much work as an earlier one had."""
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._weight = torch.randn(256, 256, device=self._device, requires_grad=True)
        self._input = torch.randn(64, 256, device=self._device)
        self.rounds = rounds or max(1, round(milliseconds / 1e3 / self._seconds_a_round()))

    def __call__(self, batch: Batch) -> None:
        """Train on a batch."""
        moved = joined(batch).to(self._device, non_blocking=True)
        value = self._input + moved.float().mean() * 0
        for _ in range(self.rounds):
            value = torch.tanh(value @ self._weight)
        value.sum().backward()  # type: ignore[no-untyped-call]  # torch does not type it
        self._weight.grad = None
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def _seconds_a_round(self) -> float:
        batch, times = torch.zeros(1), []
        for _ in range(20):
            began = time.perf_counter()
            self.rounds = 20
            self(batch)
            times.append((time.perf_counter() - began) / 20)
        return min(times)  # whatever else the machine does: all versions train equally
