"""Writing a page or a trace to where the user wants it."""

from __future__ import annotations

from pathlib import Path

import typer

from unstarve.outputs import write_output
from unstarve.words import printable


def write_page(path: Path, page: str) -> None:
    """Write it whole or not at all, and say where it lies."""
    write_output(path, page)
    typer.echo(printable(f"written: {path}"), err=True)
