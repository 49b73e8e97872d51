"""The monitored loaders of this process as metrics: a flat list, or a file for node exporter."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from unstarve.collect.device.gpu import cuda_in_use
from unstarve.collect.host_facts import environment_rank, group_rank
from unstarve.evaluate.evaluator.load_recorder import replace_text
from unstarve.evaluate.monitor.meter import Totals, all_totals
from unstarve.model import Cause, Metric
from unstarve.present.exports.prometheus import counter, exposition, gauge, labels_of


def current_metrics() -> tuple[Metric, ...]:
    """Return what every `MonitoredDataLoader` of this process has counted so far, one number per entry.

    The list is flat (name, kind, help, value, labels), so a few lines feed it to any other monitoring system.
    The cause of a wait is not known while training runs: its ``cause`` is ``unknown``.
    """
    rank = group_rank()
    rank = environment_rank() if rank is None else rank
    return tuple(metric for totals in all_totals() for metric in _of_loader(totals, rank))


def write_metrics(path: str | os.PathLike[str]) -> None:
    """Write `current_metrics` for node exporter's textfile collector; `path` should end in ``.prom``.

    The file is replaced in one step: a reader sees the old numbers or the new ones, never a mix. Raises
    `MissingExtraError` where prometheus-client is not installed.
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
