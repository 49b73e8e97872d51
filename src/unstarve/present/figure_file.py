"""A figure as a file: PNG or SVG, by the name that the user gave it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from unstarve.errors import UsageError
from unstarve.outputs import write_output

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check_figure_name(output: Path) -> None:
    """Raise `UsageError` where the name says neither PNG nor SVG."""
    if output.suffix.lower() not in (".png", ".svg"):
        raise UsageError(f"a figure's file name must end in .png or .svg, got {output}")


def save_figure(figure: Figure, output: Path) -> None:
    """Write the figure, the same bytes every time. Raises `OutputError` where that cannot be."""
    kind = output.suffix.lower().removeprefix(".")
    drawn = io.BytesIO()
    figure.savefig(drawn, format=kind, metadata={"Date": None} if kind == "svg" else None)
    write_output(output, drawn.getvalue())
