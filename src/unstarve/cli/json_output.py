"""``--json FILE``: the same for every verb that has something to say to a program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from unstarve.outputs import check_output, write_output

STDOUT = Path("-")

JsonTo = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write everything as JSON; - prints it to standard output."),
]


def check_json(to: Path | None) -> None:
    """Raise `OutputError` where it is known now that `to` cannot be written."""
    if to != STDOUT:
        check_output(to)


def write_json(to: Path, document: Mapping[str, Any]) -> None:
    """Write a document to a file or, for ``-``, print it."""
    text = json.dumps(document, indent=2) + "\n"
    if to == STDOUT:
        typer.echo(text, nl=False)
    else:
        write_output(to, text)
