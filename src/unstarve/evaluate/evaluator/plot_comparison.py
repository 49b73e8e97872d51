"""Compare training on real batches with training on replayed ones, and draw both."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from unstarve.errors import LogError, UsageError
from unstarve.evaluate.evaluator.read_log import log_from_metrics, read_log
from unstarve.intervals import WORTH_IT
from unstarve.model import LoadComparison, LoadLog, Phase
from unstarve.present.exports.comparison_figure import comparison_figure
from unstarve.words import duration, percent, times


def plot_comparison(
    real_log: Any,
    ideal_log: Any,
    output: str | os.PathLike[str] | None = None,
    *,
    title: str | None = None,
) -> Path:
    """Draw real against ideal into `output` (``.png`` or ``.svg``) and return its path.

    Without an `output` the figure goes to ``comparison.png``, and a notebook shows it as well.

    A log is a path (an evaluator's ``log_file``, DALI's metrics or a run file), the result of
    ``get_metrics()``, an evaluator, or a `LoadLog`. A run file of `unstarve ideal` can be passed as both: its
    real and its replayed steps are drawn. `title` replaces the headline, which then moves below the figure.
    """
    real = _as_log(real_log, "real_log", Phase.REAL)
    ideal = _as_log(ideal_log, "ideal_log", Phase.REPLAY)
    path = Path("comparison.png" if output is None else output)
    comparison_figure(real, ideal, compare_logs(real, ideal), path, title=title)
    if output is None:
        _show_in_notebook(path)
    return path


def _show_in_notebook(figure: Path) -> None:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if hasattr(shell, "kernel"):  # IPython in a terminal has none and cannot draw
        from IPython.display import Image, display

        display(Image(filename=str(figure)))  # type: ignore[no-untyped-call]  # untyped in IPython


def _as_log(source: Any, name: str, phase: Phase) -> LoadLog:
    if isinstance(source, LoadLog):
        log = source
    elif isinstance(source, (str, os.PathLike)):
        log = read_log(Path(source), phase)
    elif isinstance(source, Mapping):
        log = log_from_metrics(source, label=name)
    elif callable(getattr(source, "get_metrics", None)):
        log = log_from_metrics(source.get_metrics(), label=name)
    else:
        raise UsageError(
            f"{name} must be a path, metrics, an evaluator or a LoadLog, got {type(source).__name__}"
        )
    if not log.load_s:
        raise LogError(f"{name}: no batches, nothing to draw")
    return log


_ENOUGH_STEPS = 20


def compare_logs(real: LoadLog, ideal: LoadLog) -> LoadComparison:
    """Compare whole steps: a wait that would have been spent computing anyway does not count as lost."""
    unit = "samples" if _has_sizes(real) and _has_sizes(ideal) else "batches"
    real_per_s, ideal_per_s = _per_s(real, unit), _per_s(ideal, unit)
    speedup = ideal_per_s / real_per_s if real_per_s and ideal_per_s else None
    return LoadComparison(
        headline=_headline(real, ideal, speedup),
        speedup=speedup,
        lost_share=None if speedup is None else max(0.0, 1 - 1 / speedup),
        real_wait_share=_wait_share(real),
        ideal_wait_share=_wait_share(ideal),
        real_per_s=real_per_s,
        ideal_per_s=ideal_per_s,
        unit=unit,
    )


def _has_sizes(log: LoadLog) -> bool:
    return bool(log.sizes) and None not in log.sizes


def _per_s(log: LoadLog, unit: str) -> float | None:
    """Training throughput: each step counts the batch it ends with, so the very first batch is left out."""
    total_s = sum(log.step_s)
    if total_s <= 0:
        return None
    count = sum(size or 0 for size in log.sizes[1:]) if unit == "samples" else len(log.step_s)
    return count / total_s


def _wait_share(log: LoadLog) -> float | None:
    total_s = sum(log.step_s)
    return min(1.0, sum(log.load_s[1:]) / total_s) if total_s > 0 else None


def _headline(real: LoadLog, ideal: LoadLog, speedup: float | None) -> str:
    if speedup is None:
        medians = duration(median(real.load_s)), duration(median(ideal.load_s))
        return f"A batch takes {medians[0]} to load and {medians[1]} to replay"
    steps = min(len(real.step_s), len(ideal.step_s))
    if steps < _ENOUGH_STEPS:
        return f"Only {steps} steps: too few to tell whether training waits for data"
    saved = percent(max(0, 1 - 1 / speedup))
    if speedup < WORTH_IT:
        return f"Training hardly waits for data: free loading would save {saved} of its time"
    return f"Training waits {saved} of the time; {times(speedup)} as fast if loading were free"
