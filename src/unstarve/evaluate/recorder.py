"""The epochs of one evaluator, and the files they are kept in."""

from __future__ import annotations

import atexit
import weakref
from pathlib import Path
from typing import Any

import torch

from unstarve.evaluate.epoch_log import EpochLog, document, now_ns
from unstarve.evaluate.log_file import NEVER_NS, LogFile


class LoadRecorder:
    """Collects epochs; writes both files when one ends, and the log from time to time and at exit too.

    Knows neither the loader nor its wrapper, so that an iterator that is still around keeps neither alive.
    """

    def __init__(self, mode: str, *, metrics_file: Path | None, log_file: Path | None) -> None:
        self.mode = mode
        self.cached_batches = 0
        self.due_ns = NEVER_NS
        """When the log should be written again, even within an epoch."""
        self._epochs: list[EpochLog] = []
        self._metrics = LogFile(metrics_file, periodic=False) if metrics_file else None
        self._log = LogFile(log_file, periodic=True) if log_file else None
        if self._log is not None:
            self.due_ns = self._log.due_ns
        _recorders.add(self)

    def begin_epoch(self, begin_ns: int) -> EpochLog:
        """A new epoch whose ``iter()`` was entered at `begin_ns` and has just returned."""
        epoch = EpochLog(self.mode, begin_ns, ready_ns=now_ns())
        self._epochs.append(epoch)
        return epoch

    def end_epoch(self, epoch: EpochLog, *, exhausted: bool) -> None:
        """The epoch's iterator is exhausted or was given up; only the first call counts."""
        if epoch.end_ns is not None:
            return
        epoch.end_ns = now_ns()
        epoch.exhausted = exhausted
        if self._metrics is not None:
            self._metrics.write(self.document, can_wait=True)
        self._write_log(can_wait=True)

    def write_log(self) -> None:
        """Bring the log on disk up to date, if there is to be one."""
        self._write_log(can_wait=False)

    def write_late(self) -> None:
        """What could wait until the process ends, and an epoch that nobody ended."""
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
        """Everything recorded so far, as plain data."""
        return document(self._epochs, mode=self.mode, cached=self.cached_batches, device=_device())


_recorders: weakref.WeakSet[LoadRecorder] = weakref.WeakSet()


@atexit.register
def _write_late() -> None:
    """After an uncaught exception the traceback keeps the iterator alive, so that it never ends its epoch."""
    for recorder in _recorders:
        recorder.write_late()


def _device() -> str:
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # untyped in torch
    return torch.cuda.get_device_name() if in_use else "cpu"
