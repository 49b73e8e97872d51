"""A report as metrics, under the names a running training exports too, and metrics as Prometheus reads them.

The text format is that of prometheus-client, an extra: for a scrape, or for node exporter's textfile folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from unstarve.errors import MissingExtraError
from unstarve.model import Cause, Diagnosis, Metric, MetricKind, Series
from unstarve.words import printable

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client import Metric as Family

_HELP = {
    "unstarve_wait_seconds_total": "Time the host spent waiting for data, by cause.",
    "unstarve_step_seconds_total": "Time of all training steps, the host's waits included.",
    "unstarve_batches_total": "Batches delivered.",
    "unstarve_samples_total": "Samples delivered.",
    "unstarve_wait_ratio": "Share of the time the host waits for data, 0 to 1.",
    "unstarve_stall_ratio": "Share of the time the GPU starves for data, 0 to 1; on a CPU the wait ratio.",
    "unstarve_regime_changes_total": "Lasting changes of the wait for data: how many.",
    "unstarve_time_seconds_total": "Where the time of the measured steps went, by cause.",
    "unstarve_headroom_ratio": "How many times as fast training would be if loading were free.",
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
    """Labels of a loader's metrics; a training that is not distributed is rank 0."""
    return {"rank": str(rank or 0), "loader": loader}


def report_metrics(diagnosis: Diagnosis, series: Sequence[Series]) -> tuple[Metric, ...]:
    """The totals of a run; unknown values are left out."""
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
    yield counter("unstarve_batches_total", sum(point.number for point in series.points), labels)
    if series.samples is not None:
        yield counter("unstarve_samples_total", series.samples, labels)


def exposition(metrics: Iterable[Metric]) -> str:
    """All metrics as text, those of one name together; label values may contain anything.

    Raises `MissingExtraError` where prometheus-client is not installed.
    """
    registry = registry_of(lambda: metrics)
    from prometheus_client import generate_latest  # optional: `registry_of` has said so if it is missing

    return generate_latest(registry).decode()


def registry_of(read: Callable[[], Iterable[Metric]]) -> CollectorRegistry:
    """A registry that calls `read` anew for every scrape. Raises `MissingExtraError` as `exposition` does."""
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.registry import Collector
    except ImportError:
        raise MissingExtraError(
            "Prometheus metrics need prometheus-client: pip install 'unstarve[prometheus]'"
        ) from None

    class Reader(Collector):
        def collect(self) -> Iterator[Family]:
            return _families(read())

    registry = CollectorRegistry()
    registry.register(Reader())
    return registry


def _families(metrics: Iterable[Metric]) -> Iterator[Family]:
    from prometheus_client import Metric as Family

    families: dict[str, Family] = {}
    for metric in metrics:
        if metric.name not in families:
            # The library appends a counter's suffix to the name of its family.
            is_counter = metric.kind is MetricKind.COUNTER
            name = metric.name.removesuffix("_total") if is_counter else metric.name
            families[metric.name] = Family(name, metric.help, str(metric.kind))
        # The format cannot escape control characters; some would end the line for some readers.
        labels = {name: printable(value, lines=True) for name, value in metric.labels.items()}
        families[metric.name].add_sample(metric.name, labels, metric.value)
    yield from families.values()
