"""Metrics as Prometheus' text format reads them: for a scrape, or for node exporter's textfile folder."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from unstarve.model import Metric
from unstarve.words import printable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(metrics: Iterable[Metric]) -> str:
    """All metrics, those of one name together; label values may contain anything."""
    families: dict[str, list[Metric]] = {}
    for metric in metrics:
        families.setdefault(metric.name, []).append(metric)
    lines: list[str] = []
    for name, family in families.items():
        lines.append(f"# HELP {name} {_escaped(family[0].help)}")
        lines.append(f"# TYPE {name} {family[0].kind}")
        lines += [f"{name}{_labels(metric.labels)} {_number(metric.value)}" for metric in family]
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{_escaped(value, quoted=True)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def _escaped(text: str, *, quoted: bool = False) -> str:
    # The format cannot escape control characters; some would end the line for some readers.
    harmless = printable(text, lines=True)
    escaped = harmless.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if quoted else escaped


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
