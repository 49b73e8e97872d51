"""`unstarve run CMD…`: record a training, then print the verdict."""

from __future__ import annotations

from typing import Annotated

import typer

from unstarve.cli.output_files import JsonTo
from unstarve.cli.recording import (
    Command,
    Force,
    HtmlFile,
    Output,
    Quiet,
    Request,
    With,
    record_and_show,
)
from unstarve.errors import UsageError
from unstarve.model.engine_names import Engine


def run(
    command: Command,
    output: Output = None,
    json_to: JsonTo = None,
    html_file: HtmlFile = None,
    steps: Annotated[
        int | None,
        typer.Option("--steps", min=1, metavar="N", help="Record N steps, then continue unrecorded."),
    ] = None,
    stop_after: Annotated[
        int | None,
        typer.Option(
            "--stop-after",
            min=1,
            metavar="N",
            help="End the command cleanly after N steps (batches delivered).",
        ),
    ] = None,
    engine: Annotated[
        Engine | None,
        typer.Option(
            "--engine",
            help="Run the command's torch loaders on one of unstarve's engines: same batches, faster. "
            "auto picks the fastest engine that fits.",
        ),
    ] = None,
    settings_file: With = None,
    quiet: Quiet = False,
    force: Force = False,
) -> None:
    """Record a training and report whether it waits for data.

    The command runs as it would alone: same batches, same output, same exit code. The report goes to
    standard error. If the command fails, the report says why.

    A script or -m MODULE runs with the Python that unstarve is installed in; to use the active one:
    `unstarve run python train.py`.

    Examples: `unstarve run train.py --epochs 3` · `unstarve run -m package.train` ·
    `unstarve run torchrun --nproc-per-node 2 train.py`
    """
    if steps is not None and stop_after is not None:
        raise UsageError("give --steps or --stop-after, not both; --stop-after N also records N steps")
    chosen = None if engine is None else engine.value
    record_and_show(
        Request(
            command,
            "run",
            output,
            json_to,
            html_file,
            quiet,
            force,
            steps=steps,
            stop_after=stop_after,
            engine=chosen,
            settings_file=settings_file,
        )
    )
