"""`unstarve trace RUN`: the run as a trace for Perfetto, or as stacks for a flame graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from unstarve.api import diagnose, load_run, reading, views_of
from unstarve.cli.examples import examples
from unstarve.cli.output_files import check_one_prints, write_file
from unstarve.errors import UsageError
from unstarve.importers.attach_profile import kept_trace
from unstarve.importers.folded_stacks import folded_stacks
from unstarve.model import Run
from unstarve.present.exports.perfetto import trace as as_trace
from unstarve.present.exports.sampled_stacks import sampled_stacks


@examples(
    ("Write train.trace.json, for ui.perfetto.dev:", "unstarve trace train.unstarve"),
    ("Write stacks for a flame graph:", "unstarve trace train.unstarve --stacks stacks.txt"),
)
def trace(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run file, finished or still being recorded.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="File to write. [default: RUN.trace.json]"),
    ] = None,
    stacks: Annotated[
        Path | None,
        typer.Option(
            "--stacks",
            metavar="FILE",
            help="Write stacks for a flame graph instead (a;b;c N), for speedscope or flamegraph.pl.",
        ),
    ] = None,
) -> None:
    """Write a timeline of the run as a trace: open it in ui.perfetto.dev or chrome://tracing.

    One track each for training, every worker, the pin-memory thread and every device; the queue depth; arrows
    from the worker that made a batch to the step that used it.
    """
    check_one_prints(output=output, stacks=stacks)
    recorded = load_run(run)
    with reading(recorded):
        if stacks is not None:
            write_file(stacks, _stacks(run, recorded))
        if stacks is None or output is not None:
            views = views_of(recorded)
            if views is None:
                raise UsageError(f"{run} has no batches to trace")
            text = json.dumps(as_trace(diagnose(recorded), views))
            write_file(output or run.with_suffix(".trace.json"), text)


def _stacks(run: Path, recorded: Run) -> str:
    """The stacks of the profiler's trace beside the run; without one, what the stack sampler has seen."""
    found = kept_trace(run)
    lines = list(sampled_stacks(recorded) if found is None else folded_stacks(found))
    if not lines:
        raise UsageError(
            f"{run} has no stacks: record it with unstarve run --profile --profile-stacks, "
            "and keep the trace next to the run file"
        )
    return "\n".join(lines) + "\n"
