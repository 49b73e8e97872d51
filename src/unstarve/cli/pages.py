"""Writing a page or a trace to where the user wants it."""

from __future__ import annotations

from pathlib import Path

import typer

from unstarve.errors import UsageError


def write_page(path: Path, page: str) -> None:
    """Write it whole or not at all, and say where it lies."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        unfinished.write_text(page, encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    typer.echo(f"written: {path}", err=True)
