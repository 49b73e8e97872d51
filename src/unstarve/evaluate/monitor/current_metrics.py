"""The monitored loaders of this process as metrics: a flat list, and a file that is replaced whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from unstarve.collect.device.cuda import cuda_in_use
from unstarve.collect.rank import environment_rank, group_rank
from unstarve.evaluate.evaluator.load_recorder import replace_text
from unstarve.evaluate.monitor.meter import Totals, all_totals
from unstarve.model import Cause, Metric
from unstarve.present.metrics import counter, gauge, labels_of
from unstarve.present.prometheus import exposition


def current_metrics() -> tuple[Metric, ...]:
    """What every `MonitoredDataLoader` of this process has counted so far, one number an entry.

    The list is flat (name, kind, help, value, labels), so that a few lines feed it to any other monitoring
    system. What a wait was spent on is not known while training runs: its ``cause`` is ``unknown``.
    """
    rank = group_rank()
    rank = environment_rank() if rank is None else rank
    return tuple(metric for totals in all_totals() for metric in _of_loader(totals, rank))


def write_metrics(path: str | os.PathLike[str]) -> None:
    """Write `current_metrics` for node exporter's textfile collector; `path` should end in ``.prom``.

    The file is replaced in one step: whoever reads it sees the old numbers or the new ones, never a part.
    """
    replace_text(Path(path), exposition(current_metrics()))


def _of_loader(totals: Totals, rank: int | None) -> Iterator[Metric]:
    labels = labels_of(totals.loader, rank)
    unexplained = {**labels, "cause": str(Cause.UNKNOWN)}
    yield counter("unstarve_wait_seconds_total", totals.wait_ns / 1e9, unexplained)
    yield counter("unstarve_step_seconds_total", totals.step_ns / 1e9, labels)
    yield counter("unstarve_batches_total", totals.batches, labels)
    if totals.samples is not None:
        yield counter("unstarve_samples_total", totals.samples, labels)
    yield counter("unstarve_regime_changes_total", totals.changes, labels)
    window = totals.window
    if window is not None and window.wait_share is not None:
        yield gauge("unstarve_wait_ratio", window.wait_share, labels)
        if not cuda_in_use():  # on a GPU the host's wait is not the device's stall
            yield gauge("unstarve_stall_ratio", window.wait_share, labels)
