"""`unstarve inspect PID`: where is a training process, what does it wait for, and what do its workers do?"""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from unstarve.cli.examples import examples
from unstarve.cli.output_files import JsonTo, check_json, write_json
from unstarve.launch.inspect_process import inspect_process
from unstarve.present.terminal.screen import for_screen, screen
from unstarve.present.terminal.stuck_text import inspection_text


@examples(
    ("Show what a stuck training waits for:", "unstarve inspect 4711"),
    ("Print the same as JSON:", "unstarve inspect 4711 --json -"),
)
def inspect(
    pid: Annotated[
        int, typer.Argument(metavar="PID", min=1, help="A training process, or one of its workers.")
    ],
    json_to: JsonTo = None,
) -> None:
    """Show the Python stack of a training process and of its workers, and what each of them waits for.

    Nothing is changed or stopped. A process that `unstarve run` started answers by itself; any other one is
    read with py-spy if that is installed and allowed.
    """
    check_json(json_to)
    found = inspect_process(pid)
    if json_to is not None:
        write_json(json_to, dataclasses.asdict(found))
    else:
        typer.echo(inspection_text(for_screen(found), screen().width), nl=False)
