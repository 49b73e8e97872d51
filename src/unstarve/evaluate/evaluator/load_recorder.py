"""The epochs of one evaluator, and the JSON files that are kept current while training runs."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from unstarve.collect.device.gpu import Gauge, cuda_in_use
from unstarve.evaluate.evaluator.epoch_log import EpochLog, document, now_ns
from unstarve.outputs import write_output


class LoadRecorder:
    """Collects epochs; writes both files when one ends, and the log also from time to time and at exit.

    Refers to neither the loader nor its wrapper, so a leftover iterator keeps neither alive.
    """

    def __init__(self, mode: str, *, metrics_file: Path | None, log_file: Path | None) -> None:
        self.mode = mode
        self.cached_batches = 0
        self.due_ns = NEVER_NS
        """When to write the log again, even within an epoch."""
        self._epochs: list[EpochLog] = []
        self._gpu = GpuUse()
        self._metrics = LogFile(metrics_file, periodic=False) if metrics_file else None
        self._log = LogFile(log_file, periodic=True) if log_file else None
        if self._log is not None:
            self.due_ns = self._log.due_ns
        _recorders.add(self)

    def begin_epoch(self, begin_ns: int) -> EpochLog:
        """Start an epoch whose ``iter()`` was entered at `begin_ns` and has just returned."""
        self._gpu.look()
        epoch = EpochLog(self.mode, begin_ns, ready_ns=now_ns())
        self._epochs.append(epoch)
        return epoch

    def end_epoch(self, epoch: EpochLog, *, exhausted: bool) -> None:
        """End an epoch: its iterator is exhausted or abandoned. Only the first call counts."""
        if epoch.end_ns is not None:
            return
        epoch.end_ns = now_ns()
        epoch.exhausted = exhausted
        if self._metrics is not None:
            self._metrics.write(self.document, can_wait=True)
        self._write_log(can_wait=True)

    def write_log(self) -> None:
        """Write the log to disk now, if there is one."""
        self._write_log(can_wait=False)

    def write_late(self) -> None:
        """At exit, write what was postponed, and epochs that never ended."""
        interrupted = any(epoch.end_ns is None for epoch in self._epochs)
        if self._log is not None and (interrupted or self._log.is_behind):
            self.write_log()
        if self._metrics is not None and self._metrics.is_behind:
            self._metrics.write(self.document)

    def _write_log(self, *, can_wait: bool) -> None:
        if self._log is not None:
            self._log.write(self.document, can_wait=can_wait)
            self.due_ns = self._log.due_ns

    def document(self) -> dict[str, Any]:
        """Return everything recorded so far, as plain data."""
        self._gpu.look()
        return document(
            self._epochs,
            mode=self.mode,
            cached=self.cached_batches,
            device=_device(),
            gpu_utilization=self._gpu.share,
        )


class GpuUse:
    """Utilization of the current GPU, from the driver's own record."""

    def __init__(self) -> None:
        self._gauge: Gauge | None = None
        self._percents = 0
        self._samples = 0

    @property
    def share(self) -> float | None:
        """Mean share of the time in which a kernel was running; None if no GPU reports it."""
        return self._percents / self._samples / 100 if self._samples else None

    def look(self) -> None:
        """Add what the driver has recorded since the last call."""
        if not cuda_in_use():
            return
        self._gauge = self._gauge or Gauge.of(torch.cuda.current_device())
        for _, percent in [] if self._gauge is None else self._gauge.utilization():
            self._percents += percent
            self._samples += 1


_recorders: weakref.WeakSet[LoadRecorder] = weakref.WeakSet()


@atexit.register
def _write_late() -> None:
    """After an uncaught exception the traceback keeps the iterator alive, so it never ends its epoch."""
    for recorder in _recorders:
        recorder.write_late()


def _device() -> str:
    return torch.cuda.get_device_name() if cuda_in_use() else "cpu"


_FLUSH_EVERY_NS = 1_000_000_000
_COSTLY_NS = 20_000_000
_PAUSE_PER_WRITE = 100
"""The pause after a write lasts at least this many times as long as the write: writing takes at most 1 %."""

NEVER_NS = 2**63 - 1


class LogFile:
    """A JSON file that is replaced at each write.

    A failed write warns once and stops periodic writes. Only the process that created the object writes: a
    forked worker inherits it and must not.
    """

    def __init__(self, path: Path, *, periodic: bool) -> None:
        self.path = path
        self._periodic = periodic
        self._pid = os.getpid()
        self._has_warned = False
        self.due_ns = now_ns() + _FLUSH_EVERY_NS if periodic else NEVER_NS
        """When the next periodic write is due."""
        self.is_behind = False
        """Whether the last write was postponed."""
        self._is_costly = False
        self._rested_ns = 0

    def write(self, document: Callable[[], Mapping[str, Any]], *, can_wait: bool = False) -> None:
        """Write now; with `can_wait`, postpone a slow write until one is due."""
        begin_ns = now_ns()
        self.is_behind = can_wait and self._is_costly and begin_ns < self._rested_ns
        if self.is_behind or os.getpid() != self._pid:
            return
        try:
            write_json(self.path, document())
        except OSError as error:
            self.due_ns = NEVER_NS
            self._warn(f"the loader log cannot be written, training continues: {error}")
            return
        end_ns = now_ns()
        self._is_costly = end_ns - begin_ns > _COSTLY_NS
        self._rested_ns = end_ns + _PAUSE_PER_WRITE * (end_ns - begin_ns)
        if self._periodic:
            self.due_ns = max(self._rested_ns, end_ns + _FLUSH_EVERY_NS)

    def _warn(self, message: str) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        try:
            warnings.warn(message, RuntimeWarning, stacklevel=4)
        except RuntimeWarning:  # warnings are errors in this process; training must still go on
            print(f"unstarve: {message}", file=sys.stderr)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Replace `path` atomically, as `replace_text` does."""
    replace_text(path, json.dumps(document) + "\n")


def replace_text(path: Path, text: str) -> None:
    """Replace `path` atomically: a reader sees the old text or the new one, never a part.

    A missing folder is created. Raises `OutputError`, which is an OSError.
    """
    with contextlib.suppress(OSError):  # if the folder cannot be created, writing says why
        path.parent.mkdir(parents=True, exist_ok=True)
    write_output(path, text, sync=False)  # training must not wait for the storage
