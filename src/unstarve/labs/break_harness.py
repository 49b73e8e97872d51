"""Run a training of the lab "When it breaks" under its limits, and say how it went.

The file defines ``make_loader()`` and ``train(loader, epochs)``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import torch

from unstarve.labs.breakage import limit_memory, limit_shared_memory
from unstarve.labs.harness import imported


class Watched:
    """A loader that notes what happens in each epoch."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self.epochs: list[list[int]] = []
        self.memory_bytes: list[int] = []
        """At the end of each epoch, of training and workers, without mapped files."""
        self.workers: list[set[int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[torch.Tensor]:
        seen: list[int] = []
        self.epochs.append(seen)
        for number, batch in enumerate(self._loader):
            seen += [int(index) for index in batch[:, 0]]
            if number == len(self._loader) - 1:  # workers may end after the last batch
                self._look()
            yield batch

    def _look(self) -> None:
        children = {child.pid for child in psutil.Process().children(recursive=True)}
        self.workers.append(children)
        self.memory_bytes.append(sum(map(_held_bytes, (os.getpid(), *children))))


def run(file: Path, epochs: int, seconds: int) -> dict[str, Any]:
    """The samples of each epoch, how much memory grew after the first, whether later ones had new workers.

    Raises `TimeoutError` after so many seconds.
    """

    def too_long(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"it was not done after {seconds} seconds")

    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(seconds)
    module = imported(file)
    limit_memory()
    limit_shared_memory()
    loader = Watched(module.make_loader())
    module.train(loader, epochs)
    signal.alarm(0)
    looks = list(zip(loader.memory_bytes, loader.workers, strict=True))
    return {
        "epochs": loader.epochs,
        "grown_bytes": looks[-1][0] - looks[0][0] if looks else 0,
        "restarts_workers": bool(looks and looks[-1][1] - looks[0][1]),
    }


def _held_bytes(pid: int) -> int:
    """Memory that a process has allocated or shares; a file that it maps needs none."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    return sum(int(status.split(name)[1].split()[0]) << 10 for name in ("RssAnon:", "RssShmem:"))
