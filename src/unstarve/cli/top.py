"""`unstarve top [RUN]`: a live view of a training while it is recorded."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live as Screen
from rich.text import Text

from unstarve.analyze.live_training import live_of
from unstarve.api import diagnose, load_run, reading
from unstarve.cli.examples import examples
from unstarve.cli.keys import SUSPEND, Keys, listening
from unstarve.cli.output_files import JsonTo, write_json
from unstarve.errors import RunFileError, UnstarveError
from unstarve.model import Live, RunState, Verdict
from unstarve.present.exports import report_json as json_view
from unstarve.present.terminal.live_view import Look, WorkerOrder, live_view, pages, verdict_line
from unstarve.present.terminal.screen import screen
from unstarve.record.follow import Follower, newest_running

_MOST_HISTORY = 64
_USUAL_S = 1.0
_LONGEST_S = 5.0
_COST = 0.01
"""Share of a core that the view may use, unless --interval asks for more."""
_ANY_HEIGHT = 10_000
_NEXT_ORDER = {
    WorkerOrder.PLACE: WorkerOrder.BUSIEST,
    WorkerOrder.BUSIEST: WorkerOrder.NONE,
    WorkerOrder.NONE: WorkerOrder.PLACE,
}


@examples(
    ("Watch the newest run in this folder:", "unstarve top"),
    ("Print the current state once, for a script:", "unstarve top train.unstarve --json -"),
)
def top(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN",
            help="A run file that is being recorded. [default: the newest in this folder]",
            show_default=False,
        ),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(
            "--interval",
            "-i",
            min=0.1,
            max=3600,
            metavar="S",
            help="Seconds between updates. [default: 1, or more to stay below 1% of a core]",
            show_default=False,
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit; the default in a pipe.")] = False,
    json_to: JsonTo = None,
) -> None:
    """Watch a training that `unstarve run` records: throughput, waiting, queue, workers, memory.

    Start the training with `unstarve run train.py` in one terminal, and this in another. Keys: `q` quits, `?`
    shows help. --json writes the current state once. The training is never touched.
    """
    path = _running() if run is None else run
    follower, console = Follower(path), screen()
    if json_to is not None:
        write_json(json_to, json_view.live(live_of(follower.read())))
    elif once or not console.is_terminal or console.is_dumb_terminal:
        _print_once(live_of(follower.read()), console)
    else:
        last = _Watching(follower, console, interval).run()
        if last is not None and last.state is not RunState.RUNNING:
            _print_once(last, console)


def press(look: Look, key: str, count: int) -> Look | None:
    """The view after a key press, with `count` pages; None to quit."""
    if key == "q":
        return None
    if key == "?":
        return replace(look, helps=not look.helps)
    if key == "p":
        return replace(look, paused=not look.paused)
    if key == "w":
        return replace(look, order=_NEXT_ORDER[look.order])
    if key in ("right", "left") and count > 1:
        step = 1 if key == "right" else -1
        page = (0 if step > 0 else count - 1) if look.page is None else look.page + step
        return replace(look, page=page if 0 <= page < count else None)  # past the last: the one that trains
    return look


def _running() -> Path:
    found = newest_running(Path())
    if found is None:
        raise RunFileError(
            "no run is being recorded in this folder; start one in another terminal with "
            "`unstarve run train.py`, or give the path of a run file"
        )
    return found


def _print_once(live: Live, console: Console) -> None:
    console.print(live_view(live, Look(), console.width, _ANY_HEIGHT), soft_wrap=True, highlight=False)
    if live.state is not RunState.RUNNING:
        console.print(Text())
        console.print(verdict_line(live.state, live.exit_code, _verdict(live.path)), highlight=False)


def _lost_share(live: Live) -> float | None:
    """The share that the first line shows."""
    return live.wait_share if live.stall_share is None else live.stall_share


def _verdict(path: str) -> Verdict | None:
    """Verdict on the whole run; None if it cannot be read."""
    try:
        run = load_run(path)
        with reading(run):
            return diagnose(run).verdict
    except UnstarveError:
        return None


class _Watching:
    """The live view: reads the run, draws, listens to keys."""

    def __init__(self, follower: Follower, console: Console, interval_s: float | None) -> None:
        self._follower = follower
        self._console = console
        self._interval_s = interval_s
        self._history: deque[float | None] = deque(maxlen=_MOST_HISTORY)
        self._look = Look()
        self._live: Live | None = None

    def run(self) -> Live | None:
        """Watch until the run ends or the user quits; return the last state."""
        while self._watch() == SUSPEND:
            os.kill(os.getpid(), signal.SIGSTOP)  # the terminal is restored; resumes here
        return self._live

    def _watch(self) -> str | None:
        with listening() as keys:
            self._look = replace(self._look, keys=keys.keyboard is not None)
            # No refresh thread: the screen is drawn when there is something new.
            with Screen(
                console=self._console,
                screen=True,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
            ) as screen:
                return self._loop(screen, keys)

    def _loop(self, screen: Screen, keys: Keys) -> str | None:
        next_s, spent_s = time.monotonic(), 0.0
        while True:
            began_s = time.thread_time()
            if time.monotonic() >= next_s:
                next_s = time.monotonic() + self._pause_s(spent_s)
                spent_s = 0.0
                if not self._look.paused or self._live is None:
                    self._live = live_of(self._follower.read())
                    self._history.append(_lost_share(self._live))
                    if self._live.state is not RunState.RUNNING:
                        return None
            assert self._live is not None
            look = replace(self._look, history=tuple(self._history))
            width, height = self._console.size
            screen.update(live_view(self._live, look, width, height), refresh=True)
            spent_s += time.thread_time() - began_s
            key = keys.wait(next_s - time.monotonic())
            if key == SUSPEND:
                return SUSPEND
            if key is not None:
                pressed = press(self._look, key, len(pages(self._live)))
                if pressed is None:
                    return None
                self._look = pressed

    def _pause_s(self, spent_s: float) -> float:
        """Pause before the next update, given the CPU time of the last one."""
        return self._interval_s or min(max(_USUAL_S, spent_s / _COST), _LONGEST_S)
