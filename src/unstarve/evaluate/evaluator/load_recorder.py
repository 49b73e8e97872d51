"""The epochs of one evaluator, and the files they are kept in."""

from __future__ import annotations

import atexit
import weakref
from pathlib import Path
from typing import Any

import torch

from unstarve.collect.device.gpu import Gauge, cuda_in_use
from unstarve.evaluate.evaluator.epoch_log import EpochLog, document, now_ns
from unstarve.evaluate.evaluator.log_file import NEVER_NS, LogFile


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
        self._gpu = GpuUse()
        self._metrics = LogFile(metrics_file, periodic=False) if metrics_file else None
        self._log = LogFile(log_file, periodic=True) if log_file else None
        if self._log is not None:
            self.due_ns = self._log.due_ns
        _recorders.add(self)

    def begin_epoch(self, begin_ns: int) -> EpochLog:
        """A new epoch whose ``iter()`` was entered at `begin_ns` and has just returned."""
        self._gpu.look()
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
        self._gpu.look()
        return document(
            self._epochs,
            mode=self.mode,
            cached=self.cached_batches,
            device=_device(),
            gpu_utilization=self._gpu.share,
        )


class GpuUse:
    """How busy the current GPU was, by the driver's own record, whenever somebody looks."""

    def __init__(self) -> None:
        self._gauge: Gauge | None = None
        self._percents = 0
        self._samples = 0

    @property
    def share(self) -> float | None:
        """Mean share of the time in which a kernel was running; None where no GPU says so."""
        return self._percents / self._samples / 100 if self._samples else None

    def look(self) -> None:
        """Take in what the driver has recorded since the last look."""
        if not cuda_in_use():
            return
        self._gauge = self._gauge or Gauge.of(torch.cuda.current_device())
        for _, percent in [] if self._gauge is None else self._gauge.utilization():
            self._percents += percent
            self._samples += 1


_recorders: weakref.WeakSet[LoadRecorder] = weakref.WeakSet()


@atexit.register
def _write_late() -> None:
    """After an uncaught exception the traceback keeps the iterator alive, so that it never ends its epoch."""
    for recorder in _recorders:
        recorder.write_late()


def _device() -> str:
    return torch.cuda.get_device_name() if cuda_in_use() else "cpu"
