"""Numbers for a monitoring system: one flat list, whatever it is then fed to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class MetricKind(StrEnum):
    """How a number moves."""

    COUNTER = "counter"
    """Only up; starts over with the process."""
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Metric:
    """One number, named by Prometheus' convention: the unit is in the name, counters end in ``_total``."""

    name: str
    kind: MetricKind
    help: str
    """What it counts, in one sentence."""
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
