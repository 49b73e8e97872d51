"""`unstarve trace RUN`: the run as a trace for Perfetto and chrome://tracing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from unstarve.api import diagnose, load_run, reading, views_of
from unstarve.cli.pages import write_page
from unstarve.errors import UsageError
from unstarve.present.exports.perfetto import trace as as_trace


def trace(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run file, finished or still being recorded.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Where to write it; RUN.trace.json otherwise."),
    ] = None,
) -> None:
    """Write who did what when as a trace: open it in ui.perfetto.dev or chrome://tracing.

    One track for training, each worker, the pin thread and each device; the queue's depth; arrows from a
    worker's batch to the step that used it.
    """
    recorded = load_run(run)
    with reading(recorded):
        views = views_of(recorded)
        if views is None:
            raise UsageError(f"{run} holds no batches to trace")
        write_page(output or run.with_suffix(".trace.json"), json.dumps(as_trace(diagnose(recorded), views)))
