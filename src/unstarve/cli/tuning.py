"""Run a command whose loaders tune themselves, and show how that goes."""

from __future__ import annotations

import dataclasses
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from unstarve import __version__
from unstarve.analyze.tried import so_far
from unstarve.launch.bootstrap_check import why_unseen
from unstarve.launch.command import launch
from unstarve.model.launch_settings import LaunchSettings, TuneSettings
from unstarve.model.tune_run import TunedLoader, TunedProcess, TuneRun
from unstarve.present.tuned import trial_line
from unstarve.steer.tuning_session import read_news

_LOOK_EVERY_S = 0.5


def tune_command(
    command: Sequence[str], argv: Sequence[str], settings: TuneSettings, console: Console
) -> TuneRun:
    """Run it to its end, or to where tuning ends it; a line on the console for each trial meanwhile.

    Nothing is left behind, whatever ends the command.
    """
    folder = Path(tempfile.mkdtemp(prefix="unstarve-tune-"))
    interrupted: list[list[TunedProcess]] = []  # a Ctrl-C ends workers, too, which says nothing of settings
    try:
        asked_for = LaunchSettings(parts=str(folder), version=__version__, tune=settings)
        with _watching(folder, console):
            exit_code = launch(argv, asked_for, lambda: interrupted.append(read_news(folder)))
        processes = interrupted[0] if interrupted else read_news(folder)
        unseen = None if processes else why_unseen(folder, argv)
        if unseen:
            console.print(f"unstarve: {unseen}", markup=False, highlight=False, soft_wrap=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    processes = [process for process in processes if process.loaders]
    first = processes[0] if processes else TunedProcess(0, 0, (), 0.0)
    if exit_code == -signal.SIGTERM and first.ended_by is not None:
        exit_code = 0  # it would not end by itself when it was asked to
    return TuneRun(
        command=tuple(command),
        exit_code=exit_code,
        ranks=len({process.rank for process in processes}),
        seconds=first.seconds,
        ended_by="interrupt" if interrupted else first.ended_by,
        loaders=tuple(sorted(map(_so_far, first.loaders), key=_importance)),
    )


def _so_far(loader: TunedLoader) -> TunedLoader:
    return loader if loader.tuning is None else dataclasses.replace(loader, tuning=so_far(loader.tuning))


def _importance(loader: TunedLoader) -> tuple[bool, int]:
    return loader.tuning is None, -loader.steps


@contextmanager
def _watching(folder: Path, console: Console) -> Iterator[None]:
    """Show trials from a thread: the command has the terminal, and this process waits for it."""
    over = threading.Event()
    shown = Shown(console)

    def look() -> None:
        while not over.wait(_LOOK_EVERY_S):
            shown.show(read_news(folder))

    watcher = threading.Thread(target=look, name="unstarve-tuning", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    shown.show(read_news(folder))


class Shown:
    """Shows each trial of the first rank once."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._trials: dict[str, int] = {}

    def show(self, processes: Sequence[TunedProcess]) -> None:
        """Print what is new."""
        for loader in processes[0].loaders if processes else ():
            if loader.tuning is None:
                continue
            key = f"{loader.name} {loader.place}"
            trials = loader.tuning.trials
            for number in range(self._trials.get(key, 0), len(trials)):
                best = max(trial.samples_per_s for trial in trials[: number + 1])
                line = trial_line(loader.name, trials[number], best, self._console.width)
                self._console.print(line, soft_wrap=True)
            self._trials[key] = len(trials)
