"""``--json FILE``, the same for every verb, and other files that a verb writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from unstarve.errors import UsageError
from unstarve.outputs import check_output, write_output
from unstarve.words import printable

STDOUT = Path("-")

JsonTo = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write everything as JSON; - prints it to standard output."),
]


def check_json(to: Path | None) -> None:
    """Raise `OutputError` if it is clear already that `to` cannot be written."""
    if to != STDOUT:
        check_output(to)


def check_one_prints(**to: Path | None) -> None:
    """Raise `UsageError` if more than one of these options (``json``, ``html``, …) is ``-``."""
    printing = [f"--{name} -" for name, path in to.items() if path == STDOUT]
    if len(printing) > 1:
        raise UsageError(f"only one of {', '.join(printing)} can print to standard output")


def write_json(to: Path, document: Mapping[str, Any]) -> None:
    """Write a document to a file or, for ``-``, print it."""
    text = json.dumps(document, indent=2) + "\n"
    if to == STDOUT:
        typer.echo(text, nl=False)
    else:
        write_output(to, text)


def write_file(path: Path, text: str) -> None:
    """Write a page, a trace or metrics whole or not at all, and say where; for ``-``, print it."""
    if path == STDOUT:
        typer.echo(text, nl=False)
        return
    write_output(path, text)
    typer.echo(printable(f"written: {path}"), err=True)
