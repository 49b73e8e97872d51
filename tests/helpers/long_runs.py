"""Trainings of any length on a fake clock, written as rows: a million steps take seconds to make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstarve.record import format as f
from unstarve.record.rows import Rows, layout
from unstarve.record.run_file import claim, finish, parts_folder
from unstarve.record.writer import Writer

MS = 1_000_000
_HANDOFF_NS = MS // 2
_BLOCK = 20_000
"""Steps made together."""
HOST = "far"
"""Not this machine: nobody looks for its processes."""


class LongTraining:
    """Steps take batches from several loaders in turn; each loader has the same number of workers, or none.

    A worker computes for 60% of a fetch and waits for the network for the rest. One step in `slow_every`
    waits a hundred times as long, and half way waits become twice as long.
    """

    def __init__(
        self, run: Path, steps: int, workers: int, *, loaders: int = 1, epoch_steps: int = 10_000,
        slow_every: int = 20_000, step_ms: float = 4.0, wait_ms: float = 1.0,
        segment_bytes: int | None = None,
    ) -> None:  # fmt: skip
        claim(run, ["train.py"], "run")
        self.run, self.steps, self.workers, self.loaders = run, steps, workers, loaders
        self.waits_ns: list[NDArray[np.int64]] = []
        self.steps_ns: list[NDArray[np.int64]] = []
        self._epoch_steps, self._slow_every = epoch_steps, slow_every
        self._step_ms, self._wait_ms = step_ms, wait_ms
        self._random = np.random.default_rng(7)
        self._now_ns, self._made = 10**9, 0
        self._main = self._writer(100, segment_bytes, worker=False)
        crew = range(workers * loaders)
        self._crew = [self._writer(200 + number, segment_bytes, worker=True) for number in crew]
        for loader in range(loaders):
            config = {"num_workers": workers, "batch_size": 8, "prefetch_factor": 2}
            where = f"train.py:{10 + loader}"
            self._main.meta(
                "loader", id=loader, name=f"loader {loader}", where=where, kind="DataLoader", config=config
            )

    def _writer(self, pid: int, segment_bytes: int | None, *, worker: bool) -> Writer:
        path = parts_folder(self.run) / f"{HOST}-{pid}-{0 if worker else 1}.part"
        writer = Writer(path, segment_bytes)
        versions = {"unstarve": "1", "torch": "2", "python": "3"}
        writer.meta(
            "process",
            pid=pid,
            host=HOST,
            rank=None,
            worker=worker,
            versions=versions,
            start_ns=10**9,
            offset_ns=0,
        )
        return writer

    def write_block(self) -> bool:
        """Write the next steps. False when all are written."""
        first, number = self._made, min(_BLOCK, self.steps - self._made, self._left_in_epoch())
        if number <= 0:
            return False
        self._made += number
        place = np.arange(first, first + number)
        if first % self._epoch_steps == 0:
            self._begin_epoch(first // self._epoch_steps)
        waits = self._random.lognormal(np.log(self._wait_ms), 0.5, number) * np.where(
            place * 2 < self.steps, 1, 2
        )
        waits[place % self._slow_every == self._slow_every - 1] *= 100
        spent = self._random.lognormal(np.log(self._step_ms), 0.2, number)
        wait_ns, step_ns = (waits * MS).astype(np.int64), (spent * MS).astype(np.int64)
        ask_ns = self._now_ns + np.cumsum(wait_ns + step_ns) - wait_ns - step_ns
        self._now_ns = int(ask_ns[-1] + wait_ns[-1] + step_ns[-1])
        self._deliver(place, ask_ns, ask_ns + wait_ns, step_ns)
        if self._made % self._epoch_steps == 0 or self._made == self.steps:
            self._end_epoch(first // self._epoch_steps)
        return True

    def finish(self) -> Path:
        """Close all files, and the run."""
        while self.write_block():
            pass
        for writer in (*self._crew, self._main):
            writer.meta("end", end_ns=self._now_ns, stopped=None)
            writer.close()
        assert finish(self.run, 0) is None
        return self.run

    def _left_in_epoch(self) -> int:
        return self._epoch_steps - self._made % self._epoch_steps

    def _begin_epoch(self, epoch: int) -> None:
        for loader in range(self.loaders):
            row = f.EpochBeginRow(loader, 0, epoch, 0, self._now_ns, self._now_ns + MS)
            self._main.row(f.EPOCH_BEGIN, 0, row)
            self._now_ns += MS
            if self.workers:
                pids = [200 + loader * self.workers + place for place in range(self.workers)]
                self._main.meta("crew", loader=loader, epoch=epoch, pids=pids)

    def _end_epoch(self, epoch: int) -> None:
        for loader in range(self.loaders):
            self._main.row(
                f.EPOCH_END, 0, f.EpochEndRow(loader, 0, epoch, self._now_ns, self._now_ns + MS, b"")
            )
            self._now_ns += MS

    def _deliver(self, place: Any, ask_ns: Any, got_ns: Any, step_ns: Any) -> None:
        epoch = int(place[0]) // self._epoch_steps
        inside = place % self._epoch_steps
        position, loader = inside // self.loaders, inside % self.loaders
        self.waits_ns.append((got_ns - ask_ns)[loader == 0])
        self.steps_ns.append(np.diff(got_ns[loader == 0]))
        rows = _unknown(f.BATCH, len(place))
        _fill(rows, loader=loader, flags=0, epoch=epoch, position=position, thread=0, size=8, nbytes=4096)
        _fill(rows, ask_ns=ask_ns, got_ns=got_ns, own_ns=9000, block=0, task=position, ready=1, sampler_ns=0)
        _fill(rows, wait_cpu_ns=MS // 10, wait_queued_ns=0, step_cpu_ns=step_ns, step_queued_ns=0)
        _write(self._main, f.BATCH, rows)
        passes = np.zeros(len(place), layout(f.BACKWARD))
        passes["at_ns"] = got_ns + 1000
        _write(self._main, f.BACKWARD, passes)
        done_ns = np.maximum(got_ns - _HANDOFF_NS * (self.workers > 0), ask_ns)
        begin_ns = done_ns - (got_ns - ask_ns)
        if self.workers == 0:
            begin_ns = ask_ns
        works = self._works(position, epoch, begin_ns, done_ns)
        if self.workers == 0:
            works["loader"] = loader
            _write(self._main, f.WORK, works)
            return
        received = np.zeros(len(place), layout(f.RECEIVED))
        _fill(
            received,
            loader=loader,
            epoch=epoch,
            task=position,
            arrived_ns=done_ns,
            ready_ns=got_ns,
            pinned_ns=got_ns,
        )
        _write(self._main, f.RECEIVED, received)
        for number, writer in enumerate(self._crew):
            of, member = divmod(number, self.workers)
            own = (loader == of) & (position % self.workers == member)
            _write(writer, f.WORK, works[own])
            sents = np.zeros(int(own.sum()), layout(f.SENT))
            _fill(sents, task=position[own], iteration=epoch, cpu_ns=MS // 8)
            _fill(sents, put_ns=done_ns[own], begin_ns=done_ns[own], end_ns=done_ns[own] + MS // 4)
            _write(writer, f.SENT, sents)

    def _works(self, position: Any, epoch: int, begin_ns: Any, done_ns: Any) -> Rows:
        works = np.zeros(len(position), layout(f.WORK))
        spent = done_ns - begin_ns
        _fill(works, loader=f.NO_LOADER, iteration=epoch, task=position, samples=8, received_ns=begin_ns)
        _fill(works, begin_ns=begin_ns, collate_ns=done_ns, done_ns=done_ns, cpu_ns=spent * 3 // 5)
        _fill(works, delay_ns=0, slow_index=position, slow_ns=spent // 8, asked_bytes=4096, storage_bytes=0)
        return works


def write_long_run(path: Path, steps: int, workers: int, **settings: Any) -> LongTraining:
    """The run file of a training, and what went into it."""
    training = LongTraining(path, steps, workers, **settings)
    training.finish()
    return training


def _unknown(kind: int, number: int) -> Rows:
    return np.zeros(number, layout(kind))


def _fill(rows: Rows, **columns: Any) -> None:
    for name, values in columns.items():
        rows[name] = values


def _write(writer: Writer, kind: int, rows: Rows) -> None:
    writer._unwritten.append((kind, rows.tobytes()))
    writer.flush(0)
