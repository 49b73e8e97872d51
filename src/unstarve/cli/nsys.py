"""`unstarve nsys CMD…`: profile a training with Nsight Systems, and report on it as on any run."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from unstarve import __version__
from unstarve.cli.examples import examples
from unstarve.cli.import_ import import_
from unstarve.cli.output_files import JsonTo, check_json
from unstarve.cli.recording import Command, Force, HtmlFile
from unstarve.errors import CommandNotFoundError, RunExistsError
from unstarve.launch.command import resolve, switched_on
from unstarve.launch.nsys_command import find_nsys, nsys_command, options_of
from unstarve.model.launch_settings import LaunchSettings
from unstarve.record import format as f
from unstarve.words import printable


@examples(
    ("Profile a training and report on it:", "unstarve nsys train.py --epochs 1"),
    ("Print the nsys command for another machine:", "unstarve nsys --print train.py"),
)
def nsys(
    command: Command,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="RUN", help="Run file to write. Default: SCRIPT-nsys.unstarve."
        ),
    ] = None,
    only_print: Annotated[
        bool, typer.Option("--print", help="Print the nsys command, and run nothing.")
    ] = False,
    json_to: JsonTo = None,
    html_file: HtmlFile = None,
    force: Force = False,
) -> None:
    """Profile the command with Nsight Systems, then import the result.

    Uses only options that the installed nsys has, and makes forked workers visible. Without nsys it prints
    what to run on a machine that has it.
    """
    check_json(json_to)
    run = output or Path(f"{Path(command[0]).stem or 'profile'}-nsys{f.SUFFIX}")
    profile = run.with_suffix("")
    found = find_nsys()
    argv = nsys_command(resolve(command), str(profile), None if found is None else options_of(found))
    if only_print:
        typer.echo(printable(shlex.join(argv)))
        return
    export = profile.with_name(profile.name + ".sqlite")
    if found is None:
        raise CommandNotFoundError(
            "nsys is not installed (it comes with the CUDA toolkit, or as the package nsight-systems); "
            f"where it is, run: {shlex.join(argv)}; then, here: unstarve import {shlex.quote(str(export))}"
        )
    if run.exists() and not force:
        raise RunExistsError(f"{run} already exists; choose another name with -o, or replace it with --force")
    exit_code = _run([found, *argv[1:]])
    if not export.exists():
        print(f"unstarve: nsys ended with exit code {exit_code} and wrote no {export}", file=sys.stderr)
        raise typer.Exit(exit_code or 1)
    import_(export, run, force, json_to, html_file)
    raise typer.Exit(exit_code)


def _run(argv: list[str]) -> int:
    """Run it to its end, in the foreground; a Ctrl-C reaches it from the terminal.

    Python processes in it mark their steps and phases.
    """
    marked = switched_on(LaunchSettings(parts="", version=__version__, only_ranges=True))
    with subprocess.Popen(argv, env={**os.environ, **marked}) as process:
        while True:
            try:
                code = process.wait()
            except KeyboardInterrupt:
                continue
            return code if code >= 0 else 128 - code
