"""Direct reads against reads through the page cache, measured on the disk that the lab is on."""

from __future__ import annotations

import warnings
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

import unstarve
from unstarve.fixes.io.page_cache import evict, residency
from unstarve.intervals import half_width, turn_order
from unstarve.labs.turns import Speedup, speedup

STATES = ("cached", "cold")
"""Whether the page cache has the files."""
_FILES = 48
_VALUES = 1 << 18  # 1 MB
_BATCH = 8
_ROUNDS = 8


def direct_speedup(folder: Path, state: str) -> Speedup | str:
    """How many times as fast direct reads are as others; a sentence where the two cannot be compared."""
    paths = _files(folder / "data" / "direct")
    seconds: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for number in range(_ROUNDS):
        for direct in turn_order((False, True), number):
            for path in paths:
                if state == "cold":
                    evict(path)
                else:
                    path.read_bytes()
            if state == "cold" and (residency(paths[-1]) or 0) > 0:
                return "This file system keeps its files in memory: they cannot be cold."
            try:
                seconds[direct].append({"seconds": _read(paths, direct=direct)})
            except RuntimeWarning as reason:
                return f"{reason}."
    return speedup(seconds[False][1:], seconds[True][1:], half_width)  # one look; the first warms up


def _read(paths: list[Path], *, direct: bool) -> float:
    """Seconds to load all of them once."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # direct reads are not possible
        dataset = unstarve.TensorFileDataset(paths, direct=direct)
    loader: unstarve.DataLoader[torch.Tensor] = unstarve.DataLoader(dataset, batch_size=_BATCH)
    began = perf_counter()
    for _ in loader:
        pass
    return perf_counter() - began


def _files(folder: Path) -> list[Path]:
    """Some files, written if need be."""
    paths = [folder / f"{number:02}.pt" for number in range(_FILES)]
    folder.mkdir(parents=True, exist_ok=True)
    for path in paths:
        if not path.exists():
            torch.save(torch.rand(_VALUES), path)
    return paths
