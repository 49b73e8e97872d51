"""A run that is being recorded by this very process: a test says what its processes have written so far."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from unstarve.record import format as f
from unstarve.record.launcher import claim, finish, parts_folder
from unstarve.record.writer import Writer

MS = 1_000_000
_INSIDE = (1000, 2000, -1, 3000, -1)


class MadeUpRun:
    """One training process and its workers, on a machine where nobody can look for them."""

    def __init__(self, path: Path, *, workers: int = 2, name: str = "train") -> None:
        claim(path, ["train.py", "--lr", "1"], "run")
        self.path = path
        self._steps = 0
        self._main = self._writer("main.part", worker=False)
        config = {"num_workers": workers, "prefetch_factor": 2}
        self._main.meta("loader", id=0, name=name, where="train.py:3", kind="DataLoader", config=config)
        self._workers = [self._writer(f"{n}.part", worker=True, pid=n) for n in range(1, workers + 1)]
        self._main.meta("crew", loader=0, epoch=0, pids=list(range(1, workers + 1)))
        self._main.row(f.EPOCH_BEGIN, 0, (0, 0, 0, 0, self._start_ns, self._start_ns))

    def _writer(self, name: str, **who: Any) -> Writer:
        writer = Writer(parts_folder(self.path) / name)
        self._start_ns = time.perf_counter_ns()
        fields = {"pid": os.getpid(), "host": "elsewhere", "rank": None, "versions": {}} | who
        writer.meta("process", **fields, start_ns=self._start_ns, offset_ns=0)
        return writer

    def step(self, count: int = 1, *, every_ms: int = 100, wait_ms: int = 60) -> None:
        """Batches that were delivered just now, after so long a wait each, made by the workers in turn."""
        end_ns = time.perf_counter_ns()
        for number in range(count):
            got = end_ns - (count - 1 - number) * every_ms * MS
            row = (0, 0, 0, self._steps, 0, 32, -1, got - wait_ms * MS, got, 9, 0, self._steps, 1, *_INSIDE)
            self._main.row(f.BATCH, 0, row)
            if self._workers:
                begin, done = got - 50 * MS, got - 5 * MS
                costs = (10 * MS, 0, 0, 0, 0, -1, 0, 5, MS, 0, 0, 17, MS, 32)
                work = (f.NO_LOADER, 0, 0, self._steps, 32, begin, begin, done - MS, done, *costs)
                self._workers[self._steps % len(self._workers)].row(f.WORK, 0, work)
            self._steps += 1
        self._flush()

    def pulse(self, doing: str = "step", *, rss: int = 2 * 10**9) -> None:
        """One of each process; the workers do nothing."""
        now = time.perf_counter_ns()
        code = 1 + f.PULSE_DOING.index(doing)
        self._main.row(f.PULSE, 0, (code, 0, now, 0, 0, 0, rss, 0, 3 * 10**6, 10**9))
        for worker in self._workers:
            worker.row(f.PULSE, 0, (1, 0, now, 0, 0, 0, rss // 4, 0, -1, -1))
        self._flush()

    def _flush(self) -> None:
        for writer in (self._main, *self._workers):
            writer.flush(0)

    def close(self) -> None:
        """All processes have left."""
        for writer in (self._main, *self._workers):
            writer.meta("end", end_ns=time.perf_counter_ns(), stopped=None)
            writer.close()

    def finish(self, exit_code: int = 0) -> None:
        """So has the command."""
        self.close()
        assert finish(self.path, exit_code) is None
