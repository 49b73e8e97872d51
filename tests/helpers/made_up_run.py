"""A run recorded by the test process itself: the test decides what its processes have written so far."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from sample_rows import BATCH, PULSE, WORK
from unstarve.record import format as f
from unstarve.record.run_file import claim, finish, parts_folder
from unstarve.record.writer import Writer

MS = 1_000_000


class MadeUpRun:
    """One training process and its workers, on a host that cannot be reached."""

    def __init__(self, path: Path, *, workers: int = 2, name: str = "train") -> None:
        claim(path, ["train.py", "--lr", "1"], "run")
        self.path = path
        self._steps = 0
        self._main = self._writer("main.part", worker=False)
        config = {"num_workers": workers, "prefetch_factor": 2}
        self._main.meta("loader", id=0, name=name, where="train.py:3", kind="DataLoader", config=config)
        self._workers = [self._writer(f"{n}.part", worker=True, pid=n) for n in range(1, workers + 1)]
        self._main.meta("crew", loader=0, epoch=0, pids=list(range(1, workers + 1)))
        self._main.row(f.EPOCH_BEGIN, 0, f.EpochBeginRow(0, 0, 0, 0, self._start_ns, self._start_ns))

    def _writer(self, name: str, **who: Any) -> Writer:
        writer = Writer(parts_folder(self.path) / name)
        self._start_ns = time.perf_counter_ns()
        fields = {"pid": os.getpid(), "host": "elsewhere", "rank": None, "versions": {}} | who
        writer.meta("process", **fields, start_ns=self._start_ns, offset_ns=0)
        return writer

    def step(self, count: int = 1, *, every_ms: int = 100, wait_ms: int = 60) -> None:
        """Batches delivered just now, each after a wait of `wait_ms`, made by the workers in turn."""
        end_ns = time.perf_counter_ns()
        for number in range(count):
            got = end_ns - (count - 1 - number) * every_ms * MS
            step = self._steps
            row = BATCH._replace(position=step, task=step, ask_ns=got - wait_ms * MS, got_ns=got)
            self._main.row(f.BATCH, 0, row)
            if self._workers:
                begin, done = got - 50 * MS, got - 5 * MS
                times = {"received_ns": begin, "begin_ns": begin, "collate_ns": done - MS, "done_ns": done}
                self._workers[step % len(self._workers)].row(f.WORK, 0, WORK._replace(task=step, **times))
            self._steps += 1
        self._flush()

    def pulse(self, doing: str = "step", *, rss: int = 2 * 10**9) -> None:
        """One of each process; the workers do nothing."""
        now = time.perf_counter_ns()
        code = 1 + f.PULSE_DOING.index(doing)
        shm = {"shm_bytes": 3 * 10**6, "shm_total_bytes": 10**9}
        self._main.row(f.PULSE, 0, PULSE._replace(doing=code, at_ns=now, rss_bytes=rss, **shm))
        for worker in self._workers:
            worker.row(f.PULSE, 0, PULSE._replace(at_ns=now, rss_bytes=rss // 4))
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
