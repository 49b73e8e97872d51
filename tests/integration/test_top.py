"""`unstarve top` in a real terminal, in a pipe, beside a real training; terminals are left as they were."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import psutil
import pytest

import unstarve
from made_up_run import MadeUpRun
from unstarve.model import Live, RunState
from unstarve.record.run_file import discard

UNSTARVE = Path(sys.executable).with_name("unstarve")
LONGEST_S = 120
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
CRASHING = (
    "import unstarve.cli.top as top; from unstarve.cli import main; "
    "top.pages = lambda live: 1 / 0; main(['top', 'run.unstarve'])"
)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[MadeUpRun]:
    made_up = MadeUpRun(tmp_path / "run.unstarve")
    made_up.step(30)
    made_up.pulse()
    yield made_up
    made_up.close()


class Terminal:
    """A terminal with a shell that notes how the terminal is before and after the command."""

    def __init__(self, folder: Path, *command: str) -> None:
        self.folder = folder
        script = (
            f"trap : INT TERM HUP; stty -g > before; {shlex.join(command)}; echo $? > code; stty -g > after"
        )
        self.shell = pexpect.spawn(
            "sh",
            ["-c", script],
            cwd=str(folder),
            encoding="utf-8",
            dimensions=(24, 80),
            timeout=LONGEST_S,
            env={**os.environ, "TERM": "xterm", "LANG": "C.UTF-8"},
        )
        self.shown = ""

    def expect(self, text: str) -> None:
        self.shell.expect_exact(text)
        self.shown += f"{self.shell.before}{text}"

    def command(self) -> psutil.Process:
        """The process of the command itself."""
        (child,) = psutil.Process(self.shell.pid).children()
        return child

    def ended(self) -> int:
        """The command's exit code, when it has ended and the terminal is as it was."""
        self.expect_end()
        assert (self.folder / "before").read_text() == (self.folder / "after").read_text()
        assert self.shown.count(ENTER) == self.shown.count(LEAVE) > 0
        assert self.shown.rindex(SHOW) > self.shown.rindex(HIDE)
        return int((self.folder / "code").read_text())

    def expect_end(self) -> None:
        self.shell.expect(pexpect.EOF)
        self.shown += self.shell.before
        self.shell.close()


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*command: str) -> Terminal:
        opened.append(Terminal(tmp_path, *(command or (str(UNSTARVE), "top", "run.unstarve"))))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.shell.close(force=True)


def leave_by_q(terminal: Terminal, _run: MadeUpRun) -> None:
    terminal.shell.send("q")


def leave_by_ctrl_c(terminal: Terminal, _run: MadeUpRun) -> None:
    terminal.shell.sendintr()


def leave_by_sigterm(terminal: Terminal, _run: MadeUpRun) -> None:
    terminal.command().send_signal(signal.SIGTERM)


def leave_by_sighup(terminal: Terminal, _run: MadeUpRun) -> None:
    terminal.command().send_signal(signal.SIGHUP)


def leave_as_the_run_is_taken_away(_terminal: Terminal, run: MadeUpRun) -> None:
    discard(run.path)


@pytest.mark.parametrize(
    ("leave", "code"),
    [
        (leave_by_q, 0),
        (leave_by_ctrl_c, 130),
        (leave_by_sigterm, 143),
        (leave_by_sighup, 129),
        (leave_as_the_run_is_taken_away, 2),
    ],
)
def test_however_it_is_left_the_terminal_is_clean(
    watch: Callable[..., Terminal], run: MadeUpRun, leave: Callable[[Terminal, MadeUpRun], None], code: int
) -> None:
    terminal = watch()
    terminal.expect("steps so far")
    leave(terminal, run)
    assert terminal.ended() == code
    assert "Traceback" not in terminal.shown


def test_a_defect_of_ours_leaves_the_terminal_clean_too(
    watch: Callable[..., Terminal], run: MadeUpRun
) -> None:
    terminal = watch(sys.executable, "-c", CRASHING)
    terminal.expect("steps so far")
    terminal.shell.send("w")
    assert terminal.ended() == 1
    assert "ZeroDivisionError" in terminal.shown[terminal.shown.rindex(LEAVE) :]


def test_keys_change_the_image_at_once(watch: Callable[..., Terminal], run: MadeUpRun) -> None:
    terminal = watch(str(UNSTARVE), "top", "--interval", "3600")
    terminal.expect("steps so far")
    for key, then in (
        ("?", "quit; training continues"),
        ("?", "2 workers"),
        ("p", "paused"),
        ("p", "running"),
    ):
        terminal.shell.send(key)
        terminal.expect(then)
    terminal.shell.setwinsize(30, 50)
    terminal.expect("unstarve top")
    terminal.shell.send("q")
    assert terminal.ended() == 0


def test_stopped_from_the_keyboard_it_gives_the_terminal_back_and_goes_on_later(
    watch: Callable[..., Terminal], run: MadeUpRun
) -> None:
    terminal = watch()
    terminal.expect("steps so far")
    command = terminal.command()
    command.send_signal(signal.SIGTSTP)
    terminal.expect(LEAVE)
    wait_until(lambda: command.status() == psutil.STATUS_STOPPED)
    command.send_signal(signal.SIGCONT)
    terminal.expect(ENTER)
    terminal.expect("steps so far")
    terminal.shell.send("q")
    assert terminal.ended() == 0


def test_when_the_run_ends_it_says_so_with_the_verdict(
    watch: Callable[..., Terminal], run: MadeUpRun
) -> None:
    terminal = watch()
    terminal.expect("steps so far")
    run.finish(7)
    assert terminal.ended() == 0
    said = terminal.shown[terminal.shown.rindex(LEAVE) :]
    assert "the run has ended, exit code 7" in said
    assert "STARVED" in said


def test_in_a_pipe_it_prints_one_image_without_colours(project, run: MadeUpRun) -> None:
    done = project.unstarve("top")
    assert done.returncode == 0, done.stderr
    assert "30 steps so far" in done.stdout
    assert "main 2.0 GB, workers 1.0 GB, /dev/shm 3 MB of 1.0 GB" in done.stdout
    assert "\x1b" not in done.stdout


def test_where_nothing_runs_it_says_how_to_start(project) -> None:
    done = project.unstarve("top")
    assert done.returncode == 2
    assert "unstarve run train.py" in done.stderr
    assert done.stdout == ""


def test_as_json_it_tells_what_the_image_shows(project, run: MadeUpRun) -> None:
    said: dict[str, Any] = json.loads(project.unstarve("top", "run.unstarve", "--json", "-").stdout)
    assert (said["schema"], said["state"], said["steps"]) == ("unstarve.live/1", "running", 30)
    assert [worker["pid"] for worker in said["trainers"][0]["loaders"][0]["workers"]] == [1, 2]


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_real_training_is_seen_at_work_and_its_memory_with_it(project) -> None:
    project.write(
        "train.py",
        """
        from pathlib import Path
        from data import DataLoader, Numbers

        train = DataLoader(Numbers(10**6, load_s=0.001), batch_size=4, num_workers=2)
        for batch in train:
            if Path("enough").exists():
                break
        """,
    )
    process = project.start("run", "-o", "run.unstarve", "train.py")
    wait_until((project.folder / "run.unstarve").exists)
    live = seen(unstarve.follow(project.folder / "run.unstarve"), all_is_known)
    (trainer,) = live.trainers
    assert trainer.loader.name == "train"
    assert [worker.place for worker in trainer.loader.workers] == [0, 1]
    assert trainer.loader.queue_room == 4
    (project.folder / "enough").touch()
    assert process.wait(LONGEST_S) == 0
    *_, last = unstarve.follow(project.folder / "run.unstarve")
    assert (last.state, last.exit_code) == (RunState.FINISHED, 0)
    memory = project.report()["memory"]
    assert {"training", "workers"} <= {line["name"] for line in memory["lines"]}
    assert memory["training_peak_bytes"] > 0


def all_is_known(live: Live) -> bool:
    workers = [worker for trainer in live.trainers for worker in trainer.loader.workers]
    known = [live.memory.main_bytes, *(worker.rss_bytes for worker in workers)]
    return live.steps > 10 and len(workers) == 2 and None not in known and live.steps_per_s is not None


def seen(looks: Iterator[Live], wanted: Callable[[Live], bool]) -> Live:
    """The first look that shows what is waited for."""
    deadline = time.monotonic() + LONGEST_S
    for live in looks:
        if wanted(live):
            return live
        assert time.monotonic() < deadline, live
        time.sleep(0.1)
    raise AssertionError("the run ended before")
