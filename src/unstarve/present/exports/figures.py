"""Figures of a benchmark and of forecasts, and what every figure has in common: colours, style, file."""

from __future__ import annotations

import io
import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unstarve.errors import MissingExtraError, UsageError
from unstarve.model import Benchmark, Forecast, Kind, Promise, Way, WhatIf
from unstarve.outputs import write_output
from unstarve.present.terminal.whatif_table import headline
from unstarve.words import rate, times

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's pair: told apart in every kind of colour blindness, and in grey.
REAL, IDEAL = "#D55E00", "#0072B2"
INK, MUTED, FAINT = "#222222", "#6E6E6E", "#E4E4E4"

_LINE_COLOURS = (IDEAL, "#009E73", "#CC79A7", "#E69F00")
"""Okabe and Ito's, as well."""
_MOST_LINES = len(_LINE_COLOURS)
_BAR_COLOURS = {Kind.OURS: "#2a6fdb", Kind.PEER: "#c98a1b", Kind.LIMIT: "#9aa3ad"}
_ROW_INCHES = 0.27

_STYLE: Any = {  # matplotlib types the keys, version by version
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": FAINT,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "svg.fonttype": "none",
}


def check_figure_name(output: Path | None) -> None:
    """Raise `UsageError` unless the suffix is .png or .svg; for callers that work long before they draw."""
    if output is not None and output.suffix.lower() not in (".png", ".svg"):
        raise UsageError(f"a figure's file name must end in .png or .svg, got {output}")


@contextmanager
def figure_file(output: Path, **settings: Any) -> Iterator[Figure]:
    """A figure to draw into, written to `output` at the end of the block: the same bytes every time.

    The suffix says PNG or SVG. `settings` are those of matplotlib's `Figure`; its global settings and the
    caller's figures are left alone. Raises `UsageError` for another suffix, `MissingExtraError` without
    matplotlib, `OutputError` where the file cannot be written.
    """
    check_figure_name(output)
    kind = output.suffix.lower().removeprefix(".")
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("drawing needs matplotlib: pip install 'unstarve[plot]'") from None
    with mpl.rc_context(_STYLE):
        figure = Figure(dpi=160, facecolor="white", **settings)
        yield figure
        drawn = io.BytesIO()
        figure.savefig(drawn, format=kind, metadata={"Date": None} if kind == "svg" else None)
    write_output(output, drawn.getvalue())


def whatif_figure(result: WhatIf, output: Path) -> Path:
    """Predicted throughput over the number of workers. Errors as in `figure_file`."""
    with figure_file(output, figsize=(9, 5.2)) as figure:
        axes = figure.add_axes((0.09, 0.13, 0.88, 0.68))
        size = min(14.0, 14.0 * 72 / len(headline(result)))
        figure.text(0.045, 0.93, headline(result), fontsize=size, fontweight="bold", parse_math=False)
        subtitle = "predicted from one recorded run; the bands hold most outcomes"
        figure.text(0.045, 0.88, subtitle, fontsize=10, color=MUTED)
        _draw_forecasts(axes, result)
    return output


def speedup_figure(result: Benchmark, output: Path) -> Path:
    """How many times as fast as torch's own loader each way is. Errors as in `figure_file`."""
    rows = _measured_ways(result)
    if not rows:
        raise UsageError("nothing was measured that could be drawn")
    with figure_file(output, figsize=(9, 1.2 + _ROW_INCHES * len(rows)), layout="tight") as figure:
        _draw_speedups(figure.add_subplot(), rows)
    return output


def _draw_forecasts(axes: Axes, result: WhatIf) -> None:
    by_samples = all(one.samples_per_s is not None for one in result.curve)
    counts = sorted({one.setting.workers for one in result.curve})
    place = {count: at for at, count in enumerate(counts)}
    for (label, line), colour in zip(_lines(result).items(), _LINE_COLOURS, strict=False):
        x = [place[one.setting.workers] for one in line]
        y = [_per_s(one, by_samples) for one in line]
        scale = [value / one.steps_per_s for value, one in zip(y, line, strict=True)]
        low = [one.low * factor for one, factor in zip(line, scale, strict=True)]
        high = [one.high * factor for one, factor in zip(line, scale, strict=True)]
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(x, y, color=colour, linewidth=2, marker="o", markersize=5, label=label)
    for one, name, colour in ((result.recorded, "recorded", REAL), (result.enough, "enough", INK)):
        at = place[one.setting.workers], _per_s(one, by_samples)
        axes.plot(*at, marker="o", markersize=9, markerfacecolor="none", markeredgecolor=colour, linewidth=0)
        axes.annotate(name, at, (0, -18), textcoords="offset points", ha="center", color=colour)
    axes.set_xticks(range(len(counts)), [str(count) for count in counts])
    axes.set_xlabel("workers")
    axes.set_title("samples per second" if by_samples else "steps per second")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: rate(value) if value else "0")
    axes.grid(axis="y", color=FAINT)
    axes.spines["left"].set_visible(False)
    if len(_lines(result)) > 1:
        axes.legend(frameon=False, loc="lower right")


def _lines(result: WhatIf) -> dict[str, list[Forecast]]:
    """One line for each combination of the other settings; a loader without workers belongs to each."""
    lines: defaultdict[tuple[int | None, int | None], list[Forecast]] = defaultdict(list)
    for one in result.curve:
        if one.setting.workers:
            lines[one.setting.prefetch, one.setting.batch_size].append(one)
    for (_, size), line in lines.items():
        line += [o for o in result.curve if not o.setting.workers and o.setting.batch_size == size]
        line.sort(key=lambda o: o.setting.workers)
    if not lines:
        return {"": list(result.curve)}
    sizes, depths = {size for _, size in lines}, {depth for depth, _ in lines}
    named = {}
    for (depth, size), line in lines.items():
        words = [f"prefetch {depth}"] if len(depths) > 1 else []
        words += [f"batch {size}"] if len(sizes) > 1 else []
        named[", ".join(words)] = line
    return dict(list(named.items())[:_MOST_LINES])


def _per_s(one: Forecast, by_samples: bool) -> float:
    return one.samples_per_s if by_samples and one.samples_per_s is not None else one.steps_per_s


def _measured_ways(result: Benchmark) -> list[tuple[str, Way]]:
    return [
        (f"{part.name}: {way.name}", way)
        for part in result.parts
        for way in part.ways
        if way.kind is not Kind.STOCK and way.speedup is not None
    ]


def _draw_speedups(axes: Any, rows: list[tuple[str, Way]]) -> None:
    for at, (_, way) in enumerate(rows):
        speedup = way.speedup or 1.0
        axes.barh(at, speedup, color=_BAR_COLOURS[way.kind], height=0.7)
        bars = [one.bar.limit for one in way.checked if one.bar.promise is Promise.SPEEDUP]
        for limit in bars:
            axes.plot([limit] * 2, [at - 0.42, at + 0.42], color=INK, linewidth=1.6)
        label = times(speedup, 2, most=math.inf)
        axes.text(max([speedup, *bars]) * 1.05, at, label, va="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(left=0.5)
    axes.margins(x=0.15)
    axes.axvline(1.0, color=FAINT, linewidth=1.0)
    axes.set_yticks(range(len(rows)), [label for label, _ in rows], parse_math=False)
    axes.invert_yaxis()
    axes.tick_params(colors=MUTED, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_title("times as fast as torch's own loader; the line is the bar", loc="left", fontsize=10)
