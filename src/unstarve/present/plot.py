"""Real training against replayed training, as one figure."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unstarve.errors import MissingExtraError
from unstarve.model import LoadComparison, LoadLog
from unstarve.present.figure_file import check_figure_name, save_figure
from unstarve.present.plot_panels import (
    FAINT,
    IDEAL_NAME,
    INK,
    MUTED,
    REAL_NAME,
    draw_load_times,
    draw_shares,
    draw_throughput,
    share_rows,
)
from unstarve.words import duration

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LEFT = 0.075
_FITS_AT_17 = 66
"""Characters of a headline that the figure is wide enough for; a longer one is set smaller."""

STYLE: Any = {  # matplotlib types the keys, version by version
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


def comparison_figure(
    real: LoadLog,
    ideal: LoadLog,
    comparison: LoadComparison,
    output: Path,
    *,
    title: str | None = None,
) -> Path:
    """Draw both logs to `output`, PNG or SVG by its suffix, and return it; a missing folder is made.

    Needs matplotlib, and leaves its settings and any figure of the caller's alone.
    """
    check_figure_name(output)
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("drawing needs matplotlib: pip install 'unstarve[plot]'") from None
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 5.8), dpi=160, facecolor="white")
        _draw(figure, real, ideal, comparison, title)
        with contextlib.suppress(OSError):  # where it cannot be made, saving says what is missing
            output.parent.mkdir(parents=True, exist_ok=True)
        save_figure(figure, output)
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
    rows = share_rows(real, ideal, comparison)
    # As high as they have bars, so that all bars are of one thickness.
    right = columns[1].subgridspec(2, 1, height_ratios=(2, max(len(rows), 3)), hspace=0.42)
    draw_load_times(figure.add_subplot(columns[0]), real, ideal)
    draw_throughput(figure.add_subplot(right[0]), real, ideal, comparison)
    draw_shares(figure.add_subplot(right[1]), rows)


def _subtitle(real: LoadLog, ideal: LoadLog) -> str:
    return f"{REAL_NAME}: {_batches(real)}   ·   {IDEAL_NAME}: {_batches(ideal)}"


def _batches(log: LoadLog) -> str:
    count = f"{len(log.load_s):,} batches"
    return f"{count}, {duration(sum(log.step_s) / len(log.step_s))} a step" if log.step_s else count
