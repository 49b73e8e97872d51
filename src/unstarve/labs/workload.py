"""What the datasets of labs do: each fault as real work, so that the tools see what they would see elsewhere.

A dataset calls `sample(index)`; a loader may use `collate`. Which fault is in there was drawn when the lab
was started.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from pathlib import Path
from time import sleep  # this one, whatever a learner's file makes of the module
from typing import TypeAlias

import numpy as np
import torch

from unstarve.errors import UsageError
from unstarve.labs.started import started_in

SAMPLES = 128
"""Unless a lab says otherwise: few, so that a check has time for many rounds."""
SIDE = 64
_CPU_ROUNDS = 8
_LATENCY_S = 0.008
_OPENING_S = 0.5
_PIECES = 8
"""Tensors that a sample is handed over in where the hand-off is to be slow."""
_PAGE = 4096
_PAGES = 32
"""Places on the disk that a sample is scattered over."""

Batch: TypeAlias = "torch.Tensor | list[Batch]"


class Workload:
    """The data of a lab, or of one of its cases."""

    def __init__(self, folder: Path | str, samples: int = SAMPLES, *, case: str = "") -> None:
        started = started_in(Path(folder))
        cases = started.lab.cases
        faults = started.lab.drawn(started.seed)
        self._fault = faults[cases.index(case) if case else 0].name if faults else ""
        self._seed = started.seed
        self._file = Path(folder) / "data" / f"samples-{started.seed}.bin"
        self._opened_by = 0
        self.samples = samples
        if self._fault == "disk":
            self._write_file()

    def sample(self, index: int) -> torch.Tensor:
        """One sample: an image-like tensor, always the same for an index."""
        image = self._read(index) if self._fault == "disk" else _image(self._seed, index)
        if self._fault == "cpu":
            image = _smoothed(image, _CPU_ROUNDS)
        elif self._fault == "latency":
            sleep(_LATENCY_S)  # a request to a server
        elif self._fault == "startup" and self._opened_by != os.getpid():
            sleep(_OPENING_S)  # each process connects once
            self._opened_by = os.getpid()
        return torch.from_numpy(image)

    def collate(self, samples: Sequence[torch.Tensor]) -> Batch:
        """A batch of samples."""
        if self._fault == "collate":  # value by value, as in code that grew out of lists
            return torch.tensor([[[float(v) for v in row] for row in one] for one in samples])
        if self._fault == "handoff":  # many small tensors, each of which is shared with the training process
            return [[piece.clone() for piece in one.chunk(_PIECES)] for one in samples]
        return torch.stack(list(samples))

    def step_ms(self) -> float:
        """How long a training step should take."""
        return 40.0 if self._fault == "innocent" else 8.0

    def _read(self, index: int) -> np.ndarray:
        file = os.open(self._file, os.O_RDONLY)
        try:
            # Large datasets do not fit into memory: here the page cache forgets the file between samples.
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
            places = range(index, self.samples * _PAGES, self.samples)
            used = SIDE * SIDE * 4 // _PAGES
            data = b"".join(os.pread(file, used, place * _PAGE) for place in places)
        finally:
            os.close(file)
        return np.frombuffer(data, np.float32).reshape(SIDE, SIDE).copy()

    def _write_file(self) -> None:
        """Write the samples scattered: the first part of each, then the second of each, …, a page a part."""
        if not self._file.exists():
            images = np.stack([_image(self._seed, index) for index in range(self.samples)])
            parts = images.reshape(self.samples, _PAGES, -1).swapaxes(0, 1)
            self._file.parent.mkdir(exist_ok=True)
            part = self._file.with_suffix(".part")
            with part.open("wb") as file:
                np.tile(parts, _PAGE // (4 * parts.shape[2])).tofile(file)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self._file)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_inblock
        self._read(0)
        if resource.getrusage(resource.RUSAGE_SELF).ru_inblock == before:
            raise UsageError(
                f"{self._file.parent.parent} is kept in memory, and this lab needs a disk; start it elsewhere"
            )


def joined(batch: Batch) -> torch.Tensor:
    """A batch as one tensor, the sample first."""
    return batch if isinstance(batch, torch.Tensor) else torch.stack([joined(part) for part in batch])


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
