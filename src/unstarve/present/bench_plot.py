"""A benchmark as one figure: how many times as fast as torch's own loader each way is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from unstarve.errors import MissingExtraError, UsageError
from unstarve.model import Benchmark, Kind, Promise, Way
from unstarve.present.figure_file import check_figure_name, save_figure
from unstarve.present.plot_panels import FAINT, INK, MUTED
from unstarve.words import times

_COLOURS = {Kind.OURS: "#2a6fdb", Kind.PEER: "#c98a1b", Kind.LIMIT: "#9aa3ad"}
_ROW_INCHES = 0.27


def speedup_figure(result: Benchmark, output: Path) -> Path:
    """Draw to `output`, PNG or SVG by its suffix, and return it. Needs matplotlib."""
    check_figure_name(output)
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("drawing needs matplotlib: pip install 'unstarve[plot]'") from None
    rows = _rows(result)
    if not rows:
        raise UsageError("nothing was measured that could be drawn")
    style: Any = {"font.size": 9, "text.color": INK, "svg.fonttype": "none"}
    with mpl.rc_context(style):
        figure = Figure(
            figsize=(9, 1.2 + _ROW_INCHES * len(rows)), dpi=160, facecolor="white", layout="tight"
        )
        _draw(figure.add_subplot(), rows)
        save_figure(figure, output)
    return output


def _rows(result: Benchmark) -> list[tuple[str, Way]]:
    return [
        (f"{part.name}: {way.name}", way)
        for part in result.parts
        for way in part.ways
        if way.kind is not Kind.STOCK and way.speedup is not None
    ]


def _draw(axes: Any, rows: list[tuple[str, Way]]) -> None:
    for at, (_, way) in enumerate(rows):
        speedup = way.speedup or 1.0
        axes.barh(at, speedup, color=_COLOURS[way.kind], height=0.7)
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
