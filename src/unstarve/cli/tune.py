"""`unstarve tune CMD…`: find the best loader settings during the command's own training."""

from __future__ import annotations

import dataclasses
import re
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from unstarve import __version__
from unstarve.advise.patch.file_patches import check_extra, patches_for, write_patches
from unstarve.analyze.trial_table import so_far, tried
from unstarve.cli.examples import examples
from unstarve.cli.output_files import STDOUT, JsonTo, check_json, write_json
from unstarve.cli.overwriting import FINISH_CAUTION, TUNE_CAUTION, written_meanwhile
from unstarve.cli.recording import Command, leave
from unstarve.errors import NotPatchableError, UnstarveError, UsageError
from unstarve.launch.bootstrap_check import why_unseen
from unstarve.launch.command import launch, other_python, resolve
from unstarve.launch.written_files import files_written_since
from unstarve.model import SavedLoader
from unstarve.model.launch_settings import LaunchSettings, TuneSettings
from unstarve.model.tune_run import TunedLoader, TunedProcess, TuneRun
from unstarve.outputs import check_output
from unstarve.present.terminal.screen import screen
from unstarve.present.tuned import headline, print_tuning, trial_line
from unstarve.record.settings_file import write_saved
from unstarve.steer.tuning_session import read_progress
from unstarve.words import printable

_UNITS = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0}
_READ_EVERY_S = 0.5


@examples(
    ("Find the best settings:", "unstarve tune train.py"),
    ("Tune for a minute and save the result:", "unstarve tune --budget 60 --save tuned.toml train.py"),
    ("Print the change to your source:", "unstarve tune --patch train.py"),
    ("For a script that ends in seconds:", "unstarve tune --rerun 5 train.py"),
)
def tune(
    command: Command,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="S|Nsteps",
            help="Settle after this many seconds (90, 5min) or steps (200steps) of training. "
            "[default: until the best settings are found]",
        ),
    ] = None,
    stop: Annotated[
        bool, typer.Option("--stop/--finish", help="End the command when tuning is done, or let it finish.")
    ] = True,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FILE.toml", help="Save the settings for `unstarve run --with`."),
    ] = None,
    patch: Annotated[
        bool, typer.Option("--patch", help="Print the change to your source as a unified diff.")
    ] = False,
    write: Annotated[
        bool,
        typer.Option("--write", help="Make that change. In a git repository, only to committed files."),
    ] = False,
    images: Annotated[
        bool,
        typer.Option(
            "--images/--no-images",
            help="Also try reading the images of a torchvision ImageFolder with unstarve, and on a GPU.",
        ),
    ] = True,
    rerun: Annotated[
        int,
        typer.Option(
            "--rerun",
            min=0,
            metavar="N",
            help="If the command ends before tuning is done, start it again, up to N times.",
        ),
    ] = 0,
    json_to: JsonTo = None,
) -> None:
    """Find the best loader settings and parts of unstarve, measured in your own training.

    The command runs unchanged, but its training loader tries settings between steps. Every sample comes once,
    in your sampler's order. Results go to standard error, a patch to standard output.
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
    if (note := other_python(command)) is not None:
        _say(f"unstarve: {note}", console)
    _say(f"unstarve: {TUNE_CAUTION if stop else FINISH_CAUTION}", console)
    began_ns = time.time_ns()
    run = _run(command, argv, settings, console, rerun)
    written = files_written_since(Path(), began_ns)
    run = dataclasses.replace(run, files_written=written.names)
    tables = [tried(one.tuning) for one in run.tuned if one.tuning is not None]
    print_tuning(run, tables, console)
    problem = None
    try:
        if json_to is not None:
            write_json(json_to, run.to_json())
        if save is not None:
            _save(run, save, console)
        if patch or write:
            _change_source(run, console, show=patch, write=write)
    except (UnstarveError, OSError) as error:  # the command has run: its exit code comes first
        _say(f"unstarve: {error}", console)
        problem = getattr(error, "exit_code", 2)
    if not (save or patch or write) and any(one.change() for one in run.tuned):
        _say("To keep these settings, use --save FILE.toml, or --patch for a change to your source.", console)
    line = written_meanwhile(written)
    if line is not None:
        _say(line, console)
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
        raise UsageError(f"--budget takes a time or steps, like 90, 5min or 200steps, got {text!r}")
    if match.group(2).startswith("step"):
        if not amount.is_integer():
            raise UsageError(f"--budget takes whole steps, got {text!r}")
        return None, int(amount)
    return amount * _UNITS[match.group(2)], None


# --- running the command ---


def _run(
    command: Sequence[str], argv: Sequence[str], settings: TuneSettings, console: Console, rerun: int
) -> TuneRun:
    """Run the command until it ends or tuning ends it, with a line on the console for each trial.

    If it ends first, it is started again up to `rerun` times and goes on with what was measured. No temporary
    file is left behind, whatever ends the command.
    """
    folder = Path(tempfile.mkdtemp(prefix="unstarve-tune-"))
    interrupted: list[list[TunedProcess]] = []  # Ctrl-C also ends workers, which says nothing about settings
    try:
        launch_settings = LaunchSettings(parts=str(folder), version=__version__, tune=settings)
        with _showing_trials(folder, console):
            exit_code = launch(argv, launch_settings, lambda: interrupted.append(read_progress(folder)))
            runs = 1
            for number in range(1, rerun + 1):
                if exit_code or interrupted or not _ended_first(read_progress(folder)):
                    break
                _say(
                    f"unstarve: training ended before tuning did: starting it again, {number} of {rerun}",
                    console,
                )
                for progress in folder.glob("*.json"):
                    progress.unlink()
                exit_code = launch(argv, launch_settings, lambda: interrupted.append(read_progress(folder)))
                runs += 1
        processes = interrupted[0] if interrupted else read_progress(folder)
        unseen = None if processes else why_unseen(folder, argv)
        if unseen:
            console.print(
                f"unstarve: {unseen.removeprefix('unstarve ')}", markup=False, highlight=False, soft_wrap=True
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    processes = [process for process in processes if process.loaders]
    first = processes[0] if processes else TunedProcess(0, 0, (), 0.0)
    if exit_code == -signal.SIGTERM and first.ended_by is not None:
        exit_code = 0  # we asked it to end, but it had to be terminated
    return TuneRun(
        command=tuple(command),
        exit_code=exit_code,
        ranks=len({process.rank for process in processes}),
        seconds=first.seconds,
        ended_by="interrupt" if interrupted else first.ended_by,
        loaders=tuple(sorted(map(_concluded, first.loaders), key=_importance)),
        runs=runs,
    )


def _ended_first(processes: Sequence[TunedProcess]) -> bool:
    """Whether the command ended by itself while a loader was still being tuned."""
    return any(
        one.tuning is not None and not one.tuning.settled
        for process in processes[:1]
        if process.ended_by is None
        for one in process.loaders
    )


def _concluded(loader: TunedLoader) -> TunedLoader:
    return loader if loader.tuning is None else dataclasses.replace(loader, tuning=so_far(loader.tuning))


def _importance(loader: TunedLoader) -> tuple[bool, int]:
    return loader.tuning is None, -loader.steps


@contextmanager
def _showing_trials(folder: Path, console: Console) -> Iterator[None]:
    """Print trials from a thread while the main thread waits for the command."""
    over = threading.Event()
    printer = TrialPrinter(console)

    def watch() -> None:
        while not over.wait(_READ_EVERY_S):
            printer.show(read_progress(folder))

    watcher = threading.Thread(target=watch, name="unstarve-tuning", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    printer.show(read_progress(folder))


class TrialPrinter:
    """Prints each trial of the first rank once."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._trials: dict[str, int] = {}

    def show(self, processes: Sequence[TunedProcess]) -> None:
        """Print new trials."""
        for loader in processes[0].loaders if processes else ():
            if loader.tuning is None:
                continue
            key = f"{loader.name} {loader.place}"
            trials = [trial for trial in loader.tuning.trials if trial.kind == "measured"]
            for number in range(self._trials.get(key, 0), len(trials)):
                best = max(trial.samples_per_s for trial in trials[: number + 1])
                line = trial_line(loader.name, trials[number], best, self._console.width)
                self._console.print(line, soft_wrap=True)
            self._trials[key] = len(trials)


# --- keeping the result ---


def _save(run: TuneRun, path: Path, console: Console) -> None:
    """Save the settings, also those that stay as they are: `run --with` then uses the result either way."""
    saved = [
        SavedLoader(one.place, one.settings())
        for one in run.tuned
        if one.place is not None and one.was_measured
    ]
    if not saved:
        raise UsageError(f"no setting was measured, so {path} was not written")
    found = "\n".join(printable(f"{one.name}: {headline(one)}") for one in run.tuned)
    write_saved(path, saved, f"By unstarve tune, for: unstarve run --with {path.name} CMD…\n{found}")
    _say(f"saved: {path}; use it with: unstarve run --with {path} CMD…", console)


def _change_source(run: TuneRun, console: Console, *, show: bool, write: bool) -> None:
    for one in run.tuned:
        if show and one.tuning is not None and one.tuning.is_predicted:
            typer.echo(f"# {printable(one.name)}: {headline(one)}")  # patch and git apply skip it
    patches, problems = patches_for(run.tuned)
    for patch in patches:
        if show:
            typer.echo(patch.diff, nl=False)  # bytes: a source file need not be UTF-8
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
