"""The limit that storage or the page cache sets: the same bytes read in one native call and thrown away."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from unstarve.benchmark.bench_plan import Missing
from unstarve.fixes.io.reading import FD, LENGTH, OFFSET, OUT, PATH, TO, Names, Plan, blank_plan, read_plan
from unstarve.fixes.memory.buffers import fresh_memory

_DEPTHS = (32, 16, 64)
_ROOM_BYTES = 64 << 20
_CACHED_ROOM_BYTES = 12 << 20
"""Two batches of the default size, as a loader takes turns with: the CPU's caches may hold them."""
_BLOCK_BYTES = 4096
_REFUSED = "the file system has no direct reads"


class DiskAlone:
    """Reads a whole plan for each epoch, which yields `batches` empty batches.

    No batch waits for another, no file is parsed, and no Python runs per sample. The page cache is read past
    if `direct`; the number of such reads in flight is the one that proved fastest. Rows without a path are
    read from `file`.
    """

    def __init__(
        self,
        plan: Plan,
        batches: int,
        *,
        names: Names | None,
        file: Path | None,
        shuffle: bool,
        direct: bool = True,
    ) -> None:
        self._plan = plan
        self._batches = batches
        self._names = names
        self._file = file
        self._shuffle = shuffle
        self._direct = direct
        self._room_bytes = _ROOM_BYTES if direct else _CACHED_ROOM_BYTES
        self._memory = fresh_memory(max(self._room_bytes, int(plan[:, LENGTH].max(initial=0))))
        took_s = {depth: self._read(depth) for depth in (_DEPTHS if direct else _DEPTHS[:1])}
        self._depth = min(took_s, key=lambda depth: took_s[depth])

    def __iter__(self) -> Iterator[None]:
        self._read(self._depth)
        yield from [None] * self._batches

    def _read(self, depth: int) -> float:
        """Read everything and return the seconds it took."""
        since_s = time.perf_counter()
        plan = self._plan[torch.randperm(len(self._plan)).numpy()] if self._shuffle else self._plan.copy()
        plan[:, TO] = _slots(plan[:, LENGTH], self._room_bytes)
        if self._file is not None:
            plan[:, FD] = _opened(self._file)
        try:
            outcome = read_plan(plan, self._names, [self._memory], direct=self._direct, depth=depth)
        finally:
            if self._file is not None:
                os.close(int(plan[0, FD]))
        if outcome.failures or outcome.direct_refused:
            raise Missing(_REFUSED)
        return time.perf_counter() - since_s


def files_alone(paths: Sequence[Path], batches: int, *, direct: bool = True) -> DiskAlone:
    """All of these files as a whole, in random order."""
    names = Names(map(str, paths))
    sizes_bytes = np.array([path.stat().st_size for path in paths])
    plan = _plan(np.zeros_like(sizes_bytes), sizes_bytes)
    plan[:, PATH] = names.starts
    return DiskAlone(plan, batches, names=names, file=None, shuffle=True, direct=direct)


def stretches_alone(path: Path, stretch_bytes: int, batches: int, *, shuffle: bool) -> DiskAlone:
    """One file in stretches of `stretch_bytes`, in random order or in sequence."""
    starts = np.arange(path.stat().st_size // stretch_bytes) * stretch_bytes
    plan = _plan(starts, np.full_like(starts, stretch_bytes))
    return DiskAlone(plan, batches, names=None, file=path, shuffle=shuffle)


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0))
    except OSError:
        raise Missing(_REFUSED) from None


def _plan(offsets: NDArray[np.int64], sizes_bytes: NDArray[np.int64]) -> Plan:
    plan = blank_plan(len(offsets))
    plan[:, OFFSET] = offsets
    plan[:, LENGTH] = sizes_bytes
    plan[:, OUT] = 0
    return plan


def _slots(sizes_bytes: NDArray[np.int64], room_bytes: int) -> NDArray[np.int64]:
    """Where to read to: memory shared by all reads in turn, as nobody uses the bytes."""
    slot_bytes = -(-int(sizes_bytes.max()) // _BLOCK_BYTES) * _BLOCK_BYTES
    return np.arange(len(sizes_bytes)) % max(1, room_bytes // slot_bytes) * slot_bytes
