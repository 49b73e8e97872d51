"""Findings that point to the line that created a loader."""

from __future__ import annotations

from unstarve.model import Loader, LoaderSummary
from unstarve.model.checks import finding
from unstarve.model.finding import Finding


def place_of(loader: Loader | LoaderSummary | None) -> tuple[str | None, int | None]:
    """File and line where a loader was created; None where that is not known."""
    file, _, line = ("" if loader is None else loader.where).rpartition(":")
    return (file, int(line)) if file and line.isdecimal() else (None, None)


def about(
    loader: Loader | LoaderSummary | None, id: str, message: str, fix: str, harm: float = 0.0
) -> Finding:
    """A finding that points to the line that created the loader."""
    file, line = place_of(loader)
    return finding(id, message, fix, file=file, line=line, harm=harm)
