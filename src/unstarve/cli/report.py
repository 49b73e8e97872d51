"""`unstarve report RUN`: what a run file says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from unstarve.api import diagnose, load_run
from unstarve.present import json as json_view
from unstarve.present.terminal import print_report


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run file, finished or still being recorded.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Print the verdict of a recorded run. Needs no torch."""
    diagnosis = diagnose(load_run(run))
    if as_json:
        typer.echo(json.dumps(json_view.report(diagnosis), indent=2))
    else:
        print_report(diagnosis, Console())
