"""A recording in this process, and taps on iterations that are recorded there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from unstarve.collect.recorder import Recorder
from unstarve.collect.tap import Tap
from unstarve.model import Process
from unstarve.model.launch_settings import LaunchSettings
from unstarve.record.run_file import claim, finish, parts_folder
from unstarve.record.run_reader import read_run

ORDINARY = 6
"""Batches from which on nothing is special any more."""


class Recording:
    """A recorder of this process and its recording."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._loaders: list[Loader] = []
        claim(path, ["train.py"], "run")
        self.owner = Recorder(LaunchSettings(parts=str(parts_folder(path)), version="0"))
        self.owner.watch_stack = lambda: None  # type: ignore[method-assign]  # there is no training to look at

    def tap(self, batch_size: int | None = 4, *, collated: bool = True) -> Tap:
        loader = Loader()
        self._loaders.append(loader)
        number = self.owner.loader_number(loader, "DataLoader", ("train.py", 1), None)
        tap = Tap(self.owner, number, batch_size, collated=collated)
        tap.begin(None, 1, 2)
        return tap

    def end(self) -> Process:
        self.owner.close()
        assert finish(self.path, 0) is None
        (process,) = read_run(self.path).processes
        return process


class Loader:
    """Something that a recorder may know as a loader."""


def take(tap: Tap, advance: Callable[[Any], Any], source: Any = None) -> Any:
    return tap.next_batch(tap, advance, source)


def warm_up(tap: Tap, batch: Any = None) -> None:
    batch = [torch.zeros(4, 2), torch.zeros(4)] if batch is None else batch
    for _ in range(ORDINARY):
        assert take(tap, lambda _source: batch) is batch
