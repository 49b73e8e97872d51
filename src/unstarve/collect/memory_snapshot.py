"""A snapshot of CUDA memory for PyTorch's memory viewer: every allocation of the window, with its stack."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from unstarve.collect.device.gpu import cuda_in_use
from unstarve.collect.host_facts import environment_rank

_MOST_ENTRIES = 200_000
"""Allocations and frees; of more, the last ones are kept."""
NEEDS_CUDA = "no memory snapshot was written: it needs CUDA, which this training did not use"


class MemorySnapshot:
    """Records from `begin` to `end`, then writes the file. Ranks other than 0 write ``NAME.rankN.SUFFIX``."""

    def __init__(self, file: str | os.PathLike[str]) -> None:
        path, rank = Path(file), environment_rank()
        self.file = path if not rank else path.with_name(f"{path.stem}.rank{rank}{path.suffix}")
        self._recording = False

    def begin(self) -> bool:
        """Start, and return True; False where CUDA is not in use."""
        if cuda_in_use():
            torch.cuda.memory._record_memory_history(max_entries=_MOST_ENTRIES)
            self._recording = True
        return self._recording

    def end(self) -> None:
        """Write the file; nothing without a beginning."""
        if self._recording:
            self._recording = False
            try:
                torch.cuda.memory._dump_snapshot(str(self.file))  # type: ignore[no-untyped-call]  # torch does not type it
            finally:
                torch.cuda.memory._record_memory_history(enabled=None)
