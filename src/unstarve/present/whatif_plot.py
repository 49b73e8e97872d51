"""Predicted throughput over the number of workers, as one figure."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from unstarve.errors import MissingExtraError
from unstarve.model import Forecast, WhatIf
from unstarve.present.figure_file import check_figure_name, save_figure
from unstarve.present.plot import STYLE
from unstarve.present.plot_panels import FAINT, IDEAL, INK, MUTED, REAL
from unstarve.present.whatif import headline
from unstarve.words import rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = (IDEAL, "#009E73", "#CC79A7", "#E69F00")
"""Okabe and Ito's, as in the other figures."""
_MOST_LINES = len(_COLOURS)


def whatif_figure(result: WhatIf, output: Path) -> Path:
    """Draw the forecasts to `output`, PNG or SVG by its suffix, and return it. Needs matplotlib."""
    check_figure_name(output)
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("drawing needs matplotlib: pip install 'unstarve[plot]'") from None
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 5.2), dpi=160, facecolor="white")
        axes = figure.add_axes((0.09, 0.13, 0.88, 0.68))
        size = min(14.0, 14.0 * 72 / len(headline(result)))
        figure.text(0.045, 0.93, headline(result), fontsize=size, fontweight="bold", parse_math=False)
        subtitle = "predicted from one recorded run; the bands hold most outcomes"
        figure.text(0.045, 0.88, subtitle, fontsize=10, color=MUTED)
        _draw(axes, result)
        save_figure(figure, output)
    return output


def _draw(axes: Axes, result: WhatIf) -> None:
    by_samples = all(one.samples_per_s is not None for one in result.curve)
    counts = sorted({one.setting.workers for one in result.curve})
    place = {count: at for at, count in enumerate(counts)}
    for (label, line), colour in zip(_lines(result).items(), _COLOURS, strict=False):
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
