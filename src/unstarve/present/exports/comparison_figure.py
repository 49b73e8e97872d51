"""Real training against replayed training, as one figure."""

from __future__ import annotations

import contextlib
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unstarve.model import LoadComparison, LoadLog
from unstarve.present.exports.figures import IDEAL, INK, MUTED, REAL, figure_file
from unstarve.words import duration, percent, rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEFT = 0.075
_FITS_AT_17 = 66
"""Characters of a headline that fit at 17 points; a longer one gets a smaller font."""
_REAL_NAME, _IDEAL_NAME = "real", "free loading"

_ShareRow = tuple[str, float, str]
"""Name, share and colour."""

_MOST_POINTS = 1000
"""A longer series is drawn as its median and a band with the middle 80%."""
_BANDS = 300
_MOST_MARKERS = 60
_FAR_APART = 12
"""Ratio of the medians from which the scale is logarithmic: the lower series would lie on the axis."""
_OFF_SCALE = 4
"""On a linear scale, a batch this many times slower than nearly all would flatten the rest."""


def comparison_figure(
    real: LoadLog,
    ideal: LoadLog,
    comparison: LoadComparison,
    output: Path,
    *,
    title: str | None = None,
) -> Path:
    """Draw both logs to `output` and return it; a missing folder is made. Errors as in `figure_file`."""
    with figure_file(output, figsize=(11, 5.8)) as figure:
        _draw(figure, real, ideal, comparison, title)
        with contextlib.suppress(OSError):  # where it cannot be made, writing says what is missing
            output.parent.mkdir(parents=True, exist_ok=True)
    return output


def _draw(
    figure: Figure, real: LoadLog, ideal: LoadLog, comparison: LoadComparison, title: str | None
) -> None:
    lines = [comparison.headline, _subtitle(real, ideal)] if title is None else [title, comparison.headline]
    size = min(17.0, 17.0 * _FITS_AT_17 / len(lines[0])) if lines[0] else 17.0
    figure.text(_LEFT, 0.93, lines[0], fontsize=size, fontweight="bold", va="center", parse_math=False)
    figure.text(_LEFT, 0.868, lines[1], fontsize=10.5, color=MUTED, va="center", parse_math=False)
    columns = figure.add_gridspec(
        1, 2, left=_LEFT, right=0.975, bottom=0.11, top=0.76, width_ratios=(1.7, 1), wspace=0.38
    )
    rows = _share_rows(real, ideal, comparison)
    # As high as they have bars, so that all bars are of one thickness.
    right = columns[1].subgridspec(2, 1, height_ratios=(2, max(len(rows), 3)), hspace=0.42)
    _draw_load_times(figure.add_subplot(columns[0]), real, ideal)
    _draw_throughput(figure.add_subplot(right[0]), real, ideal, comparison)
    _draw_shares(figure.add_subplot(right[1]), rows)


def _subtitle(real: LoadLog, ideal: LoadLog) -> str:
    return f"{_REAL_NAME}: {_batches(real)}   ·   {_IDEAL_NAME}: {_batches(ideal)}"


def _batches(log: LoadLog) -> str:
    count = f"{len(log.load_s):,} batches"
    return f"{count}, {duration(sum(log.step_s) / len(log.step_s))} a step" if log.step_s else count


def _draw_load_times(axes: Axes, real: LoadLog, ideal: LoadLog) -> None:
    """Load times over batches, both series."""
    series = [(np.array(real.load_s), REAL, _REAL_NAME), (np.array(ideal.load_s), IDEAL, _IDEAL_NAME)]
    axes.set_title("Time to get each batch")
    for times_s, colour, _ in reversed(series):
        _draw_series(axes, np.maximum(times_s, 1e-8), colour)
    medians = [float(np.median(times_s)) for times_s, _, _ in series]
    if max(medians) > _FAR_APART * max(min(medians), 1e-8):
        axes.set_yscale("log")
    else:
        _fit_linear_scale(axes, np.concatenate([times_s for times_s, _, _ in series]))
    right = 1.0
    for (_, colour, name), median_s in reversed(list(zip(series, medians, strict=True))):
        label = f"{name}  {duration(median_s)}"
        axes.text(right, 1.035, label, color=colour, fontweight="bold", ha="right", transform=axes.transAxes)
        right -= 0.022 + 0.0165 * len(label)
    axes.yaxis.set_major_formatter(lambda seconds, _: duration(seconds, tick=True) if seconds > 0 else "0")
    axes.xaxis.set_major_formatter(lambda batch, _: f"{batch:,.0f}" if batch == int(batch) else "")
    thinned = max(len(times_s) for times_s, _, _ in series) > _MOST_POINTS
    axes.set_xlabel("batch (line: median, band: middle 80%)" if thinned else "batch")
    axes.margins(x=0.015)
    axes.grid(axis="y")
    axes.spines["left"].set_visible(False)


def _draw_throughput(axes: Axes, real: LoadLog, ideal: LoadLog, comparison: LoadComparison) -> None:
    """Throughput as two bars; the mean load times if the logs have no steps."""
    if comparison.real_per_s is not None and comparison.ideal_per_s is not None:
        axes.set_title(f"Throughput, {comparison.unit}/s")
        values = [comparison.real_per_s, comparison.ideal_per_s]
        labels = [rate(value) for value in values]
    else:
        axes.set_title("Mean time to get a batch")
        values = [float(np.mean(real.load_s)), float(np.mean(ideal.load_s))]
        labels = [duration(value) for value in values]
    _draw_bars(axes, [_REAL_NAME, _IDEAL_NAME], values, [REAL, IDEAL], labels, full=max(values))


def _draw_shares(axes: Axes, rows: list[_ShareRow]) -> None:
    """Shares of the time: lost to data, waiting, GPU busy."""
    axes.set_title("Share of time")
    if not rows:
        axes.set_axis_off()
        axes.text(0, 0.9, "unknown: the logs have no step times", color=MUTED, transform=axes.transAxes)
        return
    names, values, colours = (list(column) for column in zip(*rows, strict=True))
    _draw_bars(axes, names, values, colours, [percent(value) for value in values], full=1.0, track=True)


def _share_rows(real: LoadLog, ideal: LoadLog, comparison: LoadComparison) -> list[_ShareRow]:
    """The shares that are known."""
    rows = [
        ("lost to data", comparison.lost_share, REAL),
        (f"waiting, {_REAL_NAME}", comparison.real_wait_share, REAL),
        (f"waiting, {_IDEAL_NAME}", comparison.ideal_wait_share, IDEAL),
        (f"GPU busy, {_REAL_NAME}", real.gpu_busy_share, REAL),
        (f"GPU busy, {_IDEAL_NAME}", ideal.gpu_busy_share, IDEAL),
    ]
    return [(name, value, colour) for name, value, colour in rows if value is not None]


def _draw_series(axes: Axes, times_s: NDArray[np.float64], colour: str) -> None:
    if len(times_s) <= _MOST_POINTS:
        marker = "o" if len(times_s) <= _MOST_MARKERS else ""
        axes.plot(times_s, color=colour, linewidth=1.4, marker=marker, markersize=4)
        return
    edges = np.linspace(0, len(times_s), _BANDS + 1).astype(int)
    parts = [times_s[begin:end] for begin, end in pairwise(edges)]
    middle = (edges[:-1] + edges[1:] - 1) / 2
    low, median, high = np.array([np.percentile(part, (10, 50, 90)) for part in parts]).T
    axes.fill_between(middle, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.plot(middle, median, color=colour, linewidth=1.4)


def _fit_linear_scale(axes: Axes, times_s: NDArray[np.float64]) -> None:
    slowest, usual = float(times_s.max()), float(np.percentile(times_s, 98))
    axes.set_ylim(bottom=0)
    if slowest > _OFF_SCALE * usual > 0:
        axes.set_ylim(top=2 * usual)
        note = f"slowest {duration(slowest)}, off the scale"
        axes.text(0.02, 0.96, note, color=MUTED, fontsize=9, va="top", transform=axes.transAxes)


def _draw_bars(
    axes: Axes,
    names: list[str],
    values: list[float],
    colours: list[str],
    labels: list[str],
    *,
    full: float,
    track: bool = False,
) -> None:
    """Horizontal bars, first on top, each followed by its number; `track` draws the full length behind."""
    rows = range(len(values))
    if track:
        axes.barh(rows, [full] * len(values), color="#F3F3F3", height=0.62)
    axes.barh(rows, values, color=colours, height=0.62)
    for row, label in zip(rows, labels, strict=True):
        position = full if track else values[row]
        axes.text(position + full * 0.03, row, label, va="center_baseline", fontweight="bold", fontsize=10)
    axes.set_yticks(list(rows), names)
    axes.invert_yaxis()
    axes.set_xlim(0, full * 1.22)
    axes.tick_params(axis="y", colors=INK)
    axes.xaxis.set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
