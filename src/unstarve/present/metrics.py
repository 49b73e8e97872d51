"""A report as a flat list of metrics, under the names that a running training exports, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from unstarve.model import Cause, Diagnosis, Metric, MetricKind, Series

_HELP = {
    "unstarve_wait_seconds_total": "Time training spent waiting for data, by cause.",
    "unstarve_step_seconds_total": "Time of all training steps, waiting included.",
    "unstarve_batches_total": "Batches delivered.",
    "unstarve_samples_total": "Samples delivered.",
    "unstarve_wait_ratio": "Share of the time training waits for data, 0 to 1.",
    "unstarve_stall_ratio": "Share of the time the device is idle because data is late, 0 to 1.",
    "unstarve_regime_changes_total": "Lasting changes of the wait for data: how many.",
    "unstarve_time_seconds_total": "Where the time of the run went, by cause.",
    "unstarve_headroom_ratio": "How many times as fast training would be if data were free.",
    "unstarve_samples_per_second": "Throughput of all ranks together.",
    "unstarve_run_info": "The verdict on the run.",
}


def counter(name: str, value: float, labels: Mapping[str, str]) -> Metric:
    """One of unstarve's counters."""
    return Metric(name, MetricKind.COUNTER, _HELP[name], value, labels)


def gauge(name: str, value: float, labels: Mapping[str, str]) -> Metric:
    """One of unstarve's gauges."""
    return Metric(name, MetricKind.GAUGE, _HELP[name], value, labels)


def labels_of(loader: str, rank: int | None) -> dict[str, str]:
    """A training that is not distributed is rank 0."""
    return {"rank": str(rank or 0), "loader": loader}


def report_metrics(diagnosis: Diagnosis, series: Sequence[Series]) -> tuple[Metric, ...]:
    """What a run says, with its last values; what is not known is left out."""
    return (*_of_run(diagnosis), *(metric for one in series for metric in _of_series(one)))


def _of_run(d: Diagnosis) -> Iterator[Metric]:
    told = {"state": str(d.verdict.state), "cause": str(d.verdict.cause), "device": d.device}
    yield gauge("unstarve_run_info", 1, told)
    ratios = {
        "unstarve_wait_ratio": d.wait_share,
        "unstarve_stall_ratio": d.stall_share,
        "unstarve_headroom_ratio": None if d.headroom is None else d.headroom.speedup,
        "unstarve_samples_per_second": d.throughput.samples_per_s,
    }
    yield from (gauge(name, value, {}) for name, value in ratios.items() if value is not None)
    for share in d.budget:
        yield counter("unstarve_time_seconds_total", share.seconds, {"cause": str(share.cause)})


def _of_series(series: Series) -> Iterator[Metric]:
    labels = labels_of(series.loader, series.rank)
    for cause in Cause:
        if series.waits.get(cause):
            yield counter("unstarve_wait_seconds_total", series.waits[cause], {**labels, "cause": str(cause)})
    yield counter("unstarve_step_seconds_total", series.step_s, labels)
    yield counter("unstarve_batches_total", len(series.points), labels)
    if series.samples is not None:
        yield counter("unstarve_samples_total", series.samples, labels)
