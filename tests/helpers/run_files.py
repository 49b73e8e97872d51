"""Run files without a training: a synthetic run is written as training processes write theirs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

from fake_work import MS, work_of
from fakes import FakeTraining, run_of
from unstarve.model import Crew, Loader, Phase, Process, Received, Run, Sent, Work
from unstarve.record import format as f
from unstarve.record.run_file import claim, finish, parts_folder
from unstarve.record.writer import Writer

_ROWS_AT_ONCE = 25
"""A training writes its rows together, some at a time."""


def write_run(path: Path, run: Run) -> Path:
    """Write the file that `unstarve run` would have left at `path`, without devices and stack samples."""
    claim(path, list(run.command), run.kind)
    for number, process in enumerate(run.processes):
        _write_process(Writer(parts_folder(path) / f"{number:03}.part"), process)
    assert finish(path, run.exit_code) is None
    return path


def slow_loading_run(
    steps: int = 60, *, load_ms: float = 64, step_ms: float = 8, workers: int = 1, **config: Any
) -> Run:
    """`workers` sleep `load_ms` for every batch of 8, side by side; a step takes `step_ms`."""
    training = FakeTraining()
    began_ns = training.now_ns
    training.begin("train")
    makers: list[list[Work]] = [[] for _ in range(workers)]
    for task in range(steps):
        begin_ms = began_ns / MS + task // workers * load_ms
        works = makers[task % workers]
        works.append(work_of(task, begin_ms, blocked_ms=load_ms))
        training.take(max(works[-1].done_ns + MS - training.now_ns, 0) / 1e9, "train")
        training.spend(step_ms / 1e3)
    training.end("train")
    main = training.process()
    pids = tuple(200 + place for place in range(workers))
    crew = [_worker(main, pid, tuple(works)) for pid, works in zip(pids, makers, strict=True)]
    settings = {"num_workers": workers, "batch_size": 8, "prefetch_factor": 2} | config
    main = dataclasses.replace(
        main,
        batches=tuple(b._replace(task=b.position, ready=0, wait_queued_ns=0) for b in main.batches),
        loaders=(Loader(0, "train", "train.py:3", "DataLoader", settings, "DataLoader(data)", 2),),
        receipts=tuple(
            Received(0, 0, w.task, w.done_ns + MS // 2, w.done_ns + MS // 2, w.done_ns + MS // 2)
            for works in makers
            for w in works
        ),
        crews=(Crew(0, 0, pids),),
        system={"cores": 4},
    )
    return run_of(main, *crew)


def _worker(main: Process, pid: int, works: tuple[Work, ...]) -> Process:
    sents = tuple(Sent(w.task, 0, w.done_ns, w.done_ns, w.done_ns + MS // 4, MS // 8) for w in works)
    return dataclasses.replace(
        main, pid=pid, worker=True, works=works, sents=sents, batches=(), epochs=(), loaders=()
    )


def _write_process(writer: Writer, process: Process) -> None:
    writer.meta(
        "process",
        pid=process.pid,
        host=process.host,
        rank=process.rank,
        worker=process.worker,
        versions=dict(process.versions),
        start_ns=process.start_ns,
        offset_ns=process.clock_offset_ns,
    )
    for loader in process.loaders:
        known = {name: getattr(loader, name) for name in ("id", "name", "where", "kind", "source")}
        writer.meta("loader", config=dict(loader.config), **known)
        writer.meta("batch", loader=loader.id, tensors=loader.tensors)
    for crew in process.crews:
        writer.meta("crew", loader=crew.loader, epoch=crew.epoch, pids=list(crew.pids))
    if process.system:
        writer.meta("system", **process.system)
    for message in process.lost:
        writer.meta("lost", message=message)
    _write_rows(writer, process)
    writer.meta("end", end_ns=process.end_ns, stopped=process.stopped)
    writer.close()


def _write_rows(writer: Writer, process: Process) -> None:
    now_ns = process.end_ns or 0
    for epoch in process.epochs:
        flags = f.NESTED * epoch.nested
        writer.row(f.EPOCH_BEGIN, now_ns, _row(f.EpochBeginRow, epoch, flags=flags))
        if epoch.sampler_ns:
            writer.row(f.EPOCH_SAMPLER, now_ns, _row(f.EpochSamplerRow, epoch, flags=flags))
        if epoch.no_grad:
            writer.row(f.EPOCH_NO_GRAD, now_ns, _row(f.EpochNoGradRow, epoch, flags=flags))
        if epoch.end_ns is not None:
            error = (epoch.error or "").encode()
            end = _row(f.EpochEndRow, epoch, flags=flags, ask_ns=epoch.last_ask_ns, error=error)
            writer.row(f.EPOCH_END, now_ns, end)
    for number, batch in enumerate(process.batches):
        flags = f.NESTED * batch.nested | f.SETTLING * batch.settling
        flags |= f.REPLAY * (batch.phase is Phase.REPLAY)
        writer.row(f.BATCH, now_ns, _row(f.BatchRow, batch, flags=flags))
        if number % _ROWS_AT_ONCE == 0:
            writer.flush(now_ns)
    for work in process.works:
        loader = f.NO_LOADER if work.loader is None else work.loader
        writer.row(f.WORK, now_ns, _row(f.WorkRow, work, loader=loader, flags=f.FAILED * work.failed))
        if work.helped_ns:
            helped = f.HelpedRow(work.task, work.iteration, cpu_ns=work.helped_ns, loader=loader)
            writer.row(f.HELPED, now_ns, helped)
    for sent in process.sents:
        writer.row(f.SENT, now_ns, _row(f.SentRow, sent))
    for backward in process.backwards:
        writer.row(f.BACKWARD, now_ns, backward)
    for meeting in process.meetings:
        writer.row(f.MEETING, now_ns, meeting)
    for receipt in process.receipts:
        writer.row(f.RECEIVED, now_ns, _row(f.ReceivedRow, receipt, flags=0))


def _row(kind: type[NamedTuple], event: Any, **fields: int | bytes) -> NamedTuple:
    """The row of an event: the given fields, and the event's own for the others."""
    row = {name: fields[name] if name in fields else getattr(event, name) for name in kind._fields}
    return kind(**{name: -1 if value is None else value for name, value in row.items()})
