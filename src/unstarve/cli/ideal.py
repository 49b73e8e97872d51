"""`unstarve ideal CMD…`: measure how fast training is when loading is free."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from unstarve.cli.examples import examples
from unstarve.cli.output_files import JsonTo
from unstarve.cli.overwriting import IDEAL_CAUTION
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
from unstarve.model.launch_settings import IdealSettings

_DEFAULTS = IdealSettings(replay_on="host")


class _Place(StrEnum):
    host = "host"
    device = "device"


@examples(
    ("Measure the headroom of a training:", "unstarve ideal train.py"),
    ("Leave out the copy to the device as well:", "unstarve ideal --replay-on device train.py"),
    ("Keep the result for a program:", "unstarve ideal --json ideal.json train.py"),
)
def ideal(
    command: Command,
    output: Output = None,
    json_to: JsonTo = None,
    html_file: HtmlFile = None,
    pairs: Annotated[
        int, typer.Option("--pairs", min=2, help="Replay blocks to measure, each between two real ones.")
    ] = _DEFAULTS.pairs,
    block_steps: Annotated[
        int, typer.Option("--block-steps", min=3, help="Fewest measured steps per block.")
    ] = _DEFAULTS.block_steps,
    cached_batches: Annotated[
        int, typer.Option("--cached-batches", min=1, help="Batches to keep in memory and replay.")
    ] = _DEFAULTS.cached_batches,
    replay_on: Annotated[
        _Place,
        typer.Option("--replay-on", help="Where to keep them; device leaves out the copy from the host."),
    ] = _Place.host,
    settings_file: With = None,
    quiet: Quiet = False,
    force: Force = False,
) -> None:
    """Measure the headroom: alternate real and replayed batches in one process.

    The command trains only as long as the measurement needs, then ends. Some of its batches are replayed,
    so do not keep its weights; the files it wrote are listed at the end.
    """
    settings = IdealSettings(
        pairs=pairs, block_steps=block_steps, cached_batches=cached_batches, replay_on=replay_on.value
    )
    record_and_show(
        Request(
            command,
            "ideal",
            output,
            json_to,
            html_file,
            quiet,
            force,
            ideal=settings,
            settings_file=settings_file,
            caution=IDEAL_CAUTION,
        )
    )
