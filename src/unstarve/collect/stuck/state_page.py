"""A small file in shared memory per process: what it is doing now, readable even when it hangs or is dead.

The process writes single numbers, each in one machine word, and never waits for a reader:

    word     in all processes                          word     what it makes (workers, or training itself)
    MAGIC    this layout                               STAGE    its place in `Stage`
    PID      and STARTED: the kernel's start time      TASK     torch's number of the batch
    WORKER   number of the worker, −1 in training      RECEIVED when it got the indices
    PARENT   the training process of a worker          SAMPLE   the index that it fetches now
    SIGNAL   asks for its stacks (`stack_dump`), FD    COUNT    samples of the batch
    THREAD   Python's number of its main thread        KNOWN    how many of their indices follow INDICES

    word     in a training process
    LOOKED   when its sampler last looked: old while the interpreter lock is held
    LOADER   number of the loader it waits for, −1 if it does not wait; SINCE, EPOCH, BATCH
    BEGINS   since when it is inside ``iter(loader)``, 0 if it is not
    RAISES   the signal that makes it raise a `HangError`, 0 without ``--on-hang=raise``

After the words comes a JSON text of TEXT bytes: the loaders of a training process. Times are those of
``time.perf_counter_ns``, which on Linux is one clock for all processes.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import threading
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unstarve.model.stuck import Stage, Task

SUFFIX, STACKS, HANG = ".page", ".stacks", ".hang"
_TRAINING, _WORKER = "training-", "worker-"
_MAGIC = 0x3167_7473_6E75
_MOST_INDICES = 64
_WORDS = 128
_TRAINING_BYTES, _WORKER_BYTES = 1 << 15, 1 << 12
_UNKNOWN = -1
NO_SAMPLE = -(1 << 63)
"""No dataset has this index."""

MAGIC, PID, STARTED, WORKER, PARENT, SIGNAL, FD, THREAD = range(8)
STAGE, TASK, RECEIVED, SAMPLE, COUNT, KNOWN = range(8, 14)
LOOKED, LOADER, SINCE, EPOCH, BATCH, BEGINS, RAISES, TEXT = range(16, 24)
INDICES = 32

IDLE, FETCH, COLLATE, SEND, START = range(len(Stage))
"""The numbers of the stages, in the order of `Stage`."""


class StatePage:
    """The page of this process. `words` is written to directly where speed matters."""

    def __init__(self, folder: Path | None = None, worker: int | None = None, parent: int = 0) -> None:
        """Without a folder nothing is shared, and all methods still work."""
        self.path: Path | None = None
        self._map: mmap.mmap | None = None
        self._loaders: dict[int, dict[str, Any]] = {}
        self.words: Any = array("q", bytes(8 * _WORDS))
        if folder is not None:
            self._share(folder, worker)
        words = self.words
        words[PID], words[STARTED] = os.getpid(), started(os.getpid()) or 0
        words[WORKER] = _UNKNOWN if worker is None else worker
        words[PARENT], words[LOADER], words[SAMPLE] = parent, _UNKNOWN, NO_SAMPLE
        words[STAGE], words[TASK], words[EPOCH], words[BATCH] = IDLE, _UNKNOWN, _UNKNOWN, _UNKNOWN
        words[LOOKED], words[THREAD] = time.perf_counter_ns(), threading.main_thread().ident or 0
        words[MAGIC] = _MAGIC

    def _share(self, folder: Path, worker: int | None) -> None:
        try:
            size = _TRAINING_BYTES if worker is None else _WORKER_BYTES
            path = folder / f"{_TRAINING if worker is None else _WORKER}{os.getpid()}{SUFFIX}"
            fd = os.open(os.fsencode(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(fd, 0, size)  # a full disk must fail here, not as a bus error later
                self._map = mmap.mmap(fd, size)
            finally:
                os.close(fd)
        except (OSError, AttributeError):  # the disk is full, or the folder is gone; macOS has no fallocate
            return
        self.path = path
        self.words = memoryview(self._map)[: 8 * _WORDS].cast("q")

    def makes(self, task: int, index: Any) -> None:
        """A batch of these indices is being made from now on."""
        words = self.words
        words[SAMPLE], words[TASK], words[KNOWN] = NO_SAMPLE, task, 0
        words[RECEIVED] = time.perf_counter_ns()
        try:
            words[COUNT] = len(index)
            first = array("q", index[:_MOST_INDICES])
            words[INDICES : INDICES + len(first)] = first
            words[KNOWN] = len(first)
        except (TypeError, ValueError, OverflowError):  # a single index, or keys of another kind
            if type(index) is int and abs(index) < -NO_SAMPLE:
                words[COUNT], words[KNOWN], words[INDICES] = 1, 1, index
        words[STAGE] = FETCH

    def tell_loader(self, number: int, **facts: Any) -> None:
        """Describe a loader: its name, where it was created, the pids of its workers."""
        self._loaders[number] = self._loaders.get(number, {}) | facts
        if self._map is None:
            return
        text = json.dumps(self._loaders).encode()
        self.words[TEXT] = 0
        if len(text) <= len(self._map) - 8 * _WORDS:
            self._map[8 * _WORDS : 8 * _WORDS + len(text)] = text
            self.words[TEXT] = len(text)

    def waits(self, loader: int, epoch: int, batch: int, since_ns: int) -> None:
        """Training waits for this batch since then; `loader` −1: it waits for none."""
        words = self.words
        words[LOADER] = _UNKNOWN  # a reader that looks in between sees no wait
        words[EPOCH], words[BATCH], words[SINCE] = epoch, batch, since_ns
        words[LOADER] = loader

    def remove(self) -> None:
        """The process ends, or is no longer recorded."""
        path, self.path = self.path, None
        if path is not None:
            for file in (path, path.with_suffix(STACKS)):
                with contextlib.suppress(OSError):
                    file.unlink()

    def abandon(self) -> None:
        """Leave the page to the parent, in a forked child."""
        self.path, self._map, self.words = None, None, array("q", bytes(8 * _WORDS))


class SeenPage:
    """The page of any process, as it is at this moment."""

    def __init__(self, path: Path, words: Sequence[int], loaders: dict[int, dict[str, Any]]) -> None:
        self.path = path
        self.words = words
        self.loaders = loaders

    @property
    def pid(self) -> int:
        return self.words[PID]

    @property
    def worker(self) -> int | None:
        """Number of the worker; None for a training process."""
        return None if self.words[WORKER] < 0 else self.words[WORKER]

    @property
    def alive(self) -> bool:
        """Whether this very process still runs; one that died and was not waited for does not."""
        return self.words[STARTED] == started(self.pid) and state_of(self.pid) != "Z"

    @property
    def stage(self) -> Stage:
        return list(Stage)[self.words[STAGE]] if 0 <= self.words[STAGE] < len(Stage) else Stage.IDLE

    def task(self, now_ns: int) -> Task:
        """What it makes."""
        words = self.words
        known = words[INDICES : INDICES + max(min(words[KNOWN], _MOST_INDICES), 0)]
        sample = words[SAMPLE]
        if self.stage in (Stage.IDLE, Stage.START):
            return Task(self.stage)
        return Task(
            self.stage,
            words[TASK],
            None if sample == NO_SAMPLE or self.stage is not Stage.FETCH else sample,
            tuple(known),
            words[COUNT],
            max(now_ns - words[RECEIVED], 0) / 1e9,
        )


def read_page(path: Path) -> SeenPage | None:
    """A page; None if there is none or its process is only just making it."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if len(data) < 8 * _WORDS:
        return None
    words = memoryview(data)[: 8 * _WORDS].cast("q").tolist()
    if words[MAGIC] != _MAGIC:
        return None
    loaders: dict[int, dict[str, Any]] = {}
    with contextlib.suppress(ValueError, AttributeError):  # read while it was written
        text = data[8 * _WORDS : 8 * _WORDS + words[TEXT]]
        loaders = {int(number): facts for number, facts in json.loads(text or "{}").items()}
    return SeenPage(path, words, loaders)


def training_pages(folder: Path) -> list[SeenPage]:
    """The pages of the training processes of a run that have not ended properly."""
    return _pages(folder, _TRAINING)


def worker_pages(folder: Path) -> list[SeenPage]:
    """The pages of its workers, also of those that were killed."""
    return _pages(folder, _WORKER)


def _pages(folder: Path, beginning: str) -> list[SeenPage]:
    try:
        found = os.listdir(folder)  # noqa: PTH208 - called several times a second
    except OSError:
        return []
    names = sorted(name for name in found if name.startswith(beginning) and name.endswith(SUFFIX))
    return [page for name in names if (page := read_page(folder / name)) is not None]


def stat_of(pid: int, task: int | None = None) -> list[str]:
    """The fields of ``/proc/PID/stat`` after the name, from the state on; empty without such a process."""
    path = f"/proc/{pid}/stat" if task is None else f"/proc/{pid}/task/{task}/stat"
    try:
        return Path(path).read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def state_of(pid: int) -> str:
    """The kernel's letter for the state of a process; empty without such a process."""
    return (stat_of(pid) or [""])[0]


def started(pid: int) -> int | None:
    """When a process was started, in the kernel's ticks; None without such a process."""
    fields = stat_of(pid)
    return int(fields[19]) if len(fields) > 19 else None
