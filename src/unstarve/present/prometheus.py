"""Metrics for Prometheus, as its client library writes them: for a scrape, or for a textfile folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from unstarve.errors import MissingExtraError
from unstarve.model import Metric, MetricKind
from unstarve.words import printable

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client import Metric as Family


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
