"""The panels of the comparison figure; each draws into the axes it is given."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unstarve.model import LoadComparison, LoadLog
from unstarve.words import duration, percent, rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's pair: told apart in every kind of colour blindness, and in grey.
REAL, IDEAL = "#D55E00", "#0072B2"
INK, MUTED, FAINT = "#222222", "#6E6E6E", "#E4E4E4"
REAL_NAME, IDEAL_NAME = "real", "free data"

ShareRow = tuple[str, float, str]
"""Name, share and colour."""

_MOST_POINTS = 1000
"""A longer series is drawn as its median, in a band that holds the middle 80% of the batches around."""
_BANDS = 300
_MOST_MARKERS = 60
_FAR_APART = 12
"""Ratio of the medians from which the lower series would lie on the axis of a linear scale."""
_OFF_SCALE = 4
"""On a linear scale, a batch this many times slower than nearly all would flatten the rest."""


def draw_load_times(axes: Axes, real: LoadLog, ideal: LoadLog) -> None:
    """Both series of load times over the batches."""
    series = [(np.array(real.load_s), REAL, REAL_NAME), (np.array(ideal.load_s), IDEAL, IDEAL_NAME)]
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


def draw_throughput(axes: Axes, real: LoadLog, ideal: LoadLog, comparison: LoadComparison) -> None:
    """Two bars; where the logs know no steps, the mean load times instead."""
    if comparison.real_per_s is not None and comparison.ideal_per_s is not None:
        axes.set_title(f"Throughput, {comparison.unit}/s")
        values = [comparison.real_per_s, comparison.ideal_per_s]
        labels = [rate(value) for value in values]
    else:
        axes.set_title("Mean time to get a batch")
        values = [float(np.mean(real.load_s)), float(np.mean(ideal.load_s))]
        labels = [duration(value) for value in values]
    _draw_bars(axes, [REAL_NAME, IDEAL_NAME], values, [REAL, IDEAL], labels, full=max(values))


def draw_shares(axes: Axes, rows: list[ShareRow]) -> None:
    """What part of the time is lost to data, is spent waiting, and keeps the GPU busy."""
    axes.set_title("Share of time")
    if not rows:
        axes.set_axis_off()
        axes.text(0, 0.9, "not known: no step times in the logs", color=MUTED, transform=axes.transAxes)
        return
    names, values, colours = (list(column) for column in zip(*rows, strict=True))
    _draw_bars(axes, names, values, colours, [percent(value) for value in values], full=1.0, track=True)


def share_rows(real: LoadLog, ideal: LoadLog, comparison: LoadComparison) -> list[ShareRow]:
    """The known ones among the shares worth showing."""
    rows = [
        ("lost to data", comparison.lost_share, REAL),
        (f"waiting, {REAL_NAME}", comparison.real_wait_share, REAL),
        (f"waiting, {IDEAL_NAME}", comparison.ideal_wait_share, IDEAL),
        (f"GPU busy, {REAL_NAME}", real.gpu_busy_share, REAL),
        (f"GPU busy, {IDEAL_NAME}", ideal.gpu_busy_share, IDEAL),
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
    """Horizontal bars, the first on top, each with its number behind it; a `track` shows what is full."""
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
