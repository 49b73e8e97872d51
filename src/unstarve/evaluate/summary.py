"""The text of `LoaderEvaluator.print_summary`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unstarve.evaluate.reading import promised_length
from unstarve.present.units import rate


def summary_text(loader: Any, metrics: Mapping[str, Any], *, mode: str, cached: int, capacity: int) -> str:
    """A few lines on the loader and, if any batch was delivered, on how long it took."""
    lines = [
        "Loader Evaluator Summary:",
        f"  Mode: {mode}",
        f"  Dataset size: {_or_unknown(_dataset_size(loader))}",
        f"  Number of batches: {_or_unknown(promised_length(loader))}",
        f"  Cache size: {cached}/{capacity}",
        f"  Cache ready: {cached > 0}",
    ]
    if metrics:
        wall_s, batches = metrics["total_time"], metrics["total_batches"]
        start_s = sum(metrics["iterator_start_times"])
        lines += [
            f"  Total batches processed: {batches}",
            f"  Epochs: {len(metrics['epochs'])}{'' if metrics['complete'] else ' (not all to their end)'}",
            f"  Total time: {wall_s:.2f}s",
            f"  Starting the loader: {start_s:.4f}s",
            f"  Average batch time: {metrics['avg_batch_time']:.4f}s",
            f"  Min batch time: {metrics['min_batch_time']:.4f}s",
            f"  Max batch time: {metrics['max_batch_time']:.4f}s",
        ]
        if wall_s > 0:
            waited_s = start_s + sum(metrics["batch_times"])
            lines += [
                f"  Share of time waiting for data: {waited_s / wall_s:.1%}",
                f"  Throughput: {rate(batches / wall_s)} batches/s{_samples(metrics, wall_s)}",
            ]
    return "\n".join(lines)


def _samples(metrics: Mapping[str, Any], wall_s: float) -> str:
    samples = metrics["samples"]
    return "" if samples is None else f", {rate(samples / wall_s)} samples/s"


def _dataset_size(loader: Any) -> int | None:
    try:
        return len(loader.dataset)
    except (AttributeError, TypeError, NotImplementedError):
        return None


def _or_unknown(count: int | None) -> int | str:
    return "unknown" if count is None else count
