"""`unstarve trace RUN`: the run as a trace for Perfetto or chrome://tracing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from unstarve.api import diagnose, load_run, reading, views_of
from unstarve.cli.output_files import write_file
from unstarve.errors import UsageError
from unstarve.present.exports.perfetto import trace as as_trace


def trace(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run file, finished or still being recorded.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="File to write. [default: RUN.trace.json]"),
    ] = None,
) -> None:
    """Write a timeline of the run as a trace: open it in ui.perfetto.dev or chrome://tracing.

    One track each for training, every worker, the pin-memory thread and every device; the queue depth; arrows
    from the worker that made a batch to the step that used it.
    """
    recorded = load_run(run)
    with reading(recorded):
        views = views_of(recorded)
        if views is None:
            raise UsageError(f"{run} has no batches to trace")
        write_file(output or run.with_suffix(".trace.json"), json.dumps(as_trace(diagnose(recorded), views)))
