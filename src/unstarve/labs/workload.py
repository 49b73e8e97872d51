"""What the datasets of labs do: each fault as real work, so that the tools see what they would see elsewhere.

A dataset calls `sample(index)`; a loader may use `collate`; training calls a `Step`. Which fault is in there
was drawn when the lab was started.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from unstarve.labs.started import started_in

SAMPLES = 256
SIDE = 64
_CPU_ROUNDS = 10
_LATENCY_S = 0.008
_LARGE = 48
"""Times that a sample is repeated where the hand-off is to be dear."""


class Workload:
    """The data of a lab."""

    def __init__(self, folder: Path | str, samples: int = SAMPLES) -> None:
        started = started_in(Path(folder))
        fault = started.lab.fault(started.seed)
        self._fault = "" if fault is None else fault.name
        self._seed = started.seed
        self._files = Path(folder) / "data"
        self.samples = samples
        if self._fault == "disk":
            self._write_files()

    def sample(self, index: int) -> torch.Tensor:
        """One sample: an image-like tensor, always the same for an index."""
        image = self._read(index)
        if self._fault == "cpu":
            image = _smoothed(image, _CPU_ROUNDS)
        elif self._fault == "latency":
            time.sleep(_LATENCY_S)  # a request to a server
        tensor = torch.from_numpy(image)
        return tensor.repeat(_LARGE, 1, 1) if self._fault == "handoff" else tensor

    def collate(self, samples: Sequence[torch.Tensor]) -> torch.Tensor:
        """A batch of samples."""
        if self._fault == "collate":  # value by value, as in code that grew out of lists
            return torch.tensor([[[float(v) for v in row] for row in one] for one in samples])
        return torch.stack(list(samples))

    def step_ms(self) -> float:
        """How long a training step should take."""
        return 40.0 if self._fault == "innocent" else 8.0

    def _read(self, index: int) -> np.ndarray:
        if self._fault != "disk":
            return _image(self._seed, index)
        with (self._files / f"{index:04}.npy").open("rb") as file:
            image: np.ndarray = np.load(file)
            # Large datasets do not fit into memory: here the page cache forgets each file at once.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return image[:SIDE]

    def _write_files(self) -> None:
        self._files.mkdir(exist_ok=True)
        for index in range(self.samples):
            path = self._files / f"{index:04}.npy"
            if not path.exists():
                rows = np.tile(_image(self._seed, index), (200, 1))
                np.save(path, rows)
                with path.open("rb") as file:
                    os.fsync(file.fileno())


class Step:
    """A training step as real work: so many multiplications, on the GPU if there is one."""

    def __init__(self, milliseconds: float) -> None:
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._weight = torch.randn(256, 256, device=self._device, requires_grad=True)
        self._input = torch.randn(64, 256, device=self._device)
        self._rounds = 1
        self._rounds = max(1, round(milliseconds / 1e3 / self._seconds_a_round()))

    def __call__(self, batch: torch.Tensor) -> None:
        """Train on a batch."""
        moved = batch.to(self._device, non_blocking=True)
        value = self._input + moved.float().mean() * 0
        for _ in range(self._rounds):
            value = torch.tanh(value @ self._weight)
        value.sum().backward()  # type: ignore[no-untyped-call]  # torch does not type it
        self._weight.grad = None
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def _seconds_a_round(self) -> float:
        batch, times = torch.zeros(1), []
        for _ in range(8):
            began = time.perf_counter()
            self._rounds = 20
            self(batch)
            times.append((time.perf_counter() - began) / 20)
        return sorted(times)[len(times) // 2]


def _image(seed: int, index: int) -> np.ndarray:
    return np.random.default_rng((seed, index)).random((SIDE, SIDE), dtype=np.float32)


def _smoothed(image: np.ndarray, rounds: int) -> np.ndarray:
    """Real work whose result does not depend on how it is done."""
    result = image
    for _ in range(rounds):
        padded = np.pad(result, 1, mode="edge")
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3))
        result = np.sort(windows.reshape(SIDE, SIDE, 9), axis=2)[:, :, 4].astype(np.float32)
    return result
