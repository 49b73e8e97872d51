"""A run as TensorBoard scalars: one event per delivered batch, at the time it was delivered."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any

from unstarve.errors import MissingExtraError, UsageError
from unstarve.model import Diagnosis, Series, StepPoint
from unstarve.present.exports.markdown import markdown

_SUFFIX = ".unstarve"
"""Marks the event files as ours."""


def write_events(folder: Path, diagnosis: Diagnosis, series: Sequence[Series]) -> int:
    """Write event files into `folder`, several ranks into a subfolder each. Return the number of events.

    The scalars of the main loader are ``data/wait_ms``, ``data/stall_share``, ``data/throughput`` and so on,
    those of others ``data/NAME/wait_ms``; the verdict is added as text. Steps count from 1 over all epochs.
    TensorBoard shows beside a chart what it measures. Event files of an earlier call are replaced.
    """
    ranks = sorted({one.rank for one in series}, key=lambda rank: rank or 0)
    written = 0
    for rank in ranks:
        target = folder / f"rank{rank or 0}" if len(ranks) > 1 else folder
        own = [one for one in series if one.rank == rank]
        written += _write(target, diagnosis, own, told=rank == ranks[0])
    return written


def _write(folder: Path, diagnosis: Diagnosis, series: Sequence[Series], *, told: bool) -> int:
    writers = _tensorboard("summary.writer.event_file_writer")
    try:
        earlier = sorted(folder.glob(f"events.out.tfevents.*{_SUFFIX}"))
        writer = writers.EventFileWriter(str(folder), filename_suffix=_SUFFIX)
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror or error}") from error
    written = 0
    described: set[str] = set()
    try:
        for one in series:
            for step, point in zip(accumulate(point.number for point in one.points), one.points, strict=True):
                values = [_scalar(_prefix(one), name, value, described) for name, value in scalars(point)]
                writer.add_event(_event((point.got_ns + one.clock_offset_ns) / 1e9, step, values))
                written += 1
        if told:
            at_s = diagnosis.started_at + diagnosis.wall_s
            text = _text("data/verdict", markdown(diagnosis))
            writer.add_event(_event(at_s, diagnosis.steps, [text]))
    finally:
        writer.close()
    for file in earlier:  # TensorBoard would draw two copies of a run as one zigzag line
        file.unlink(missing_ok=True)
    return written


def write_trace(folder: Path, diagnosis: Diagnosis, trace: Path) -> Path:
    """Copy a profiler's trace to where TensorBoard's profiler plugin finds it: WORKER.TIME.pt.trace.json.gz.

    Called again for the same run, it replaces its copy.
    """
    worker = re.sub(r"[^\w-]+", "_", trace.name.removesuffix(".trace.json.gz"))
    kept = folder / f"{worker}.{int(diagnosis.started_at * 1e3)}.pt.trace.json.gz"
    try:
        shutil.copyfile(trace, kept)
    except OSError as error:
        raise UsageError(f"cannot write {kept}: {error.strerror or error}") from error
    return kept


_MEANINGS = {
    "wait_ms": "The host's wait for the batch, in milliseconds.",
    "step_ms": "From one delivered batch to the next, the host's wait included, in milliseconds.",
    "stall_share": "Share of the step in which the GPU starved, by its own clock; on a CPU the wait's share.",
    "throughput": "Samples per second.",
    "ready_batches": "Batches that were ready when this one was requested.",
    "wait_ms_by_cause": "The host's wait for the batch by cause, in milliseconds.",
}


def scalars(point: StepPoint) -> Iterator[tuple[str, float]]:
    """The known scalars of one step."""
    yield "wait_ms", point.wait_s * 1e3
    known = {
        "step_ms": None if point.step_s is None else point.step_s * 1e3,
        "stall_share": point.stall_share,
        "throughput": point.samples_per_s,
        "ready_batches": point.ready,
    }
    yield from ((name, value) for name, value in known.items() if value is not None)
    yield from ((f"wait_ms_by_cause/{cause}", s * 1e3) for cause, s in point.causes.items() if s > 0)


def _prefix(series: Series) -> str:
    name = re.sub(r"[^\w.-]+", "_", series.loader)
    return "data" if series.main else f"data/{name or 'loader'}"


def _event(at_s: float, step: int, values: list[Any]) -> Any:
    summary = _tensorboard("compat.proto.summary_pb2").Summary(value=values)
    return _tensorboard("compat.proto.event_pb2").Event(wall_time=at_s, step=step, summary=summary)


def _scalar(prefix: str, name: str, value: float, described: set[str]) -> Any:
    """A scalar; TensorBoard reads what it measures from the first one of its tag."""
    summaries, tag = _tensorboard("compat.proto.summary_pb2"), f"{prefix}/{name}"
    metadata = None
    if tag not in described:
        described.add(tag)
        metadata = summaries.SummaryMetadata(summary_description=_MEANINGS[name.split("/")[0]])
    return summaries.Summary.Value(tag=tag, simple_value=value, metadata=metadata)


def _text(tag: str, text: str) -> Any:
    """A text summary, which TensorBoard renders as Markdown."""
    summaries = _tensorboard("compat.proto.summary_pb2")
    tensor = _tensorboard("compat.proto.tensor_pb2").TensorProto(
        dtype="DT_STRING", string_val=[text.encode("utf-8", "replace")]
    )
    tensor.tensor_shape.dim.add(size=1)
    shown_by = summaries.SummaryMetadata.PluginData(plugin_name="text")
    metadata = summaries.SummaryMetadata(plugin_data=shown_by)
    return summaries.Summary.Value(tag=f"{tag}/text_summary", metadata=metadata, tensor=tensor)


def _tensorboard(module: str) -> Any:
    try:
        return import_module(f"tensorboard.{module}")
    except ImportError:
        raise MissingExtraError(
            "writing TensorBoard events needs tensorboard: pip install 'unstarve[tensorboard]'"
        ) from None
