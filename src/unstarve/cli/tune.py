"""`unstarve tune CMD…`: find the best loader settings inside the command's own training."""

from __future__ import annotations

import dataclasses
import re
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from unstarve.advise.patch.files import check_extra, write_patches
from unstarve.advise.patch.plan import patches_for
from unstarve.analyze.tried import tried
from unstarve.cli.output_files import STDOUT, JsonTo, check_json, write_json
from unstarve.cli.overwriting import FINISH_CAUTION, TUNE_CAUTION, written_meanwhile
from unstarve.cli.recording import Command, leave
from unstarve.cli.tuning import tune_command
from unstarve.errors import NotPatchableError, UnstarveError, UsageError
from unstarve.launch.command import resolve
from unstarve.launch.written_files import files_written_since
from unstarve.model import SavedLoader
from unstarve.model.launch_settings import TuneSettings
from unstarve.model.tune_run import TuneRun
from unstarve.outputs import check_output
from unstarve.present.terminal.screen import screen
from unstarve.present.tuned import headline, print_tuning
from unstarve.record.saved import write_saved
from unstarve.words import printable

_UNITS = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0}


def tune(
    command: Command,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="S|Nsteps",
            help="Settle after so many seconds (90, 5min) or steps (200steps) of training at the latest. "
            "[default: when it has found the best]",
        ),
    ] = None,
    stop: Annotated[
        bool, typer.Option("--stop/--finish", help="End the command when tuning is done, or let it finish.")
    ] = True,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FILE.toml", help="Save the settings, for `unstarve run --with`."),
    ] = None,
    patch: Annotated[
        bool, typer.Option("--patch", help="Print the change to your own source, as a unified diff.")
    ] = False,
    write: Annotated[
        bool,
        typer.Option("--write", help="Make that change; in a repository only to files that are committed."),
    ] = False,
    images: Annotated[
        bool,
        typer.Option(
            "--images/--no-images",
            help="Also try to read the images of a torchvision ImageFolder with unstarve.",
        ),
    ] = True,
    json_to: JsonTo = None,
) -> None:
    """Find the best number of workers and prefetch depth, measured in your own training.

    The command runs unchanged, but its training loader tries settings between steps; every sample comes once,
    in your sampler's order. What was found goes to standard error, a patch to standard output.

    Examples: `unstarve tune train.py` · `unstarve tune --budget 60 --save tuned.toml train.py` ·
    `unstarve tune --patch train.py`
    """
    seconds, steps = parse_budget(budget)
    check_output(save)
    check_json(json_to)
    if json_to == STDOUT and patch:
        raise UsageError("--json - and --patch exclude each other: both print to standard output")
    if patch or write:
        check_extra()
    console = screen(stderr=True)
    settings = TuneSettings(stop=stop, budget_s=seconds, budget_steps=steps, images=images)
    argv = resolve(command)
    _say(f"unstarve: {TUNE_CAUTION if stop else FINISH_CAUTION}", console)
    began_ns = time.time_ns()
    run = tune_command(command, argv, settings, console)
    written = files_written_since(Path(), began_ns)
    run = dataclasses.replace(run, files_written=written.names)
    print_tuning(run, [tried(one.tuning) for one in run.tuned if one.tuning is not None], console)
    problem = None
    try:
        if json_to is not None:
            write_json(json_to, run.to_json())
        if save is not None:
            _save(run, save, console)
        if patch or write:
            _change(run, console, show=patch, write=write)
    except (UnstarveError, OSError) as error:  # the command has run: what comes next is its exit code
        _say(f"unstarve: {error}", console)
        problem = getattr(error, "exit_code", 2)
    if not (save or patch or write) and any(one.change() for one in run.tuned):
        _say("Save it with --save FILE.toml, or see the change to your source with --patch.", console)
    sentence = written_meanwhile(written)
    if sentence is not None:
        _say(sentence, console)
    leave(run.exit_code if run.exit_code or problem is None else problem)


def parse_budget(text: str | None) -> tuple[float | None, int | None]:
    """Seconds or steps.

    >>> parse_budget("90"), parse_budget("2min"), parse_budget("200steps")
    ((90.0, None), (120.0, None), (None, 200))
    """
    if text is None:
        return None, None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|min|h|steps?|)\s*", text)
    amount = float(match.group(1)) if match else 0.0
    if match is None or amount <= 0:
        raise UsageError(f"--budget takes a time or steps, like 90, 5min or 200steps, not {text!r}")
    if match.group(2).startswith("step"):
        if not amount.is_integer():
            raise UsageError(f"--budget takes whole steps, not {text!r}")
        return None, int(amount)
    return amount * _UNITS[match.group(2)], None


def _save(run: TuneRun, path: Path, console: Console) -> None:
    """Also settings that are to be kept: who runs with them gets what was found, whatever that is."""
    saved = [
        SavedLoader(one.place, one.settings())
        for one in run.tuned
        if one.place is not None and one.was_measured
    ]
    if not saved:
        raise UsageError(f"nothing was measured, so that {path} was not written")
    found = "\n".join(printable(f"{one.name}: {headline(one)}") for one in run.tuned)
    write_saved(path, saved, f"By unstarve tune, for: unstarve run --with {path.name} CMD…\n{found}")
    _say(f"saved: {path}; use it with: unstarve run --with {path} CMD…", console)


def _change(run: TuneRun, console: Console, *, show: bool, write: bool) -> None:
    patches, problems = patches_for(run.tuned)
    for patch in patches:
        if show:
            typer.echo(patch.diff, nl=False)  # bytes: a source need not be UTF-8
        for note in patch.notes:
            _say(f"note: {note}", console)
    if write and patches:
        write_patches(patches)
        names = ", ".join(str(patch.path) for patch in patches)
        _say(f"changed: {names}", console)
    if not patches and not problems:
        _say("Nothing to change in your source.", console)
    if problems:
        raise NotPatchableError("; ".join(problems))


def _say(text: str, console: Console) -> None:
    console.print(printable(text), highlight=False, soft_wrap=True)
