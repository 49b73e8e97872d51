"""Ctrl-C and other signals end training the way they end it alone, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pexpect
import psutil
import pytest

TRAIN = """
import os, sys, time
from data import *

if __name__ == "__main__":
    # One epoch without an end: Python drops an interrupt that comes while an epoch's workers are forked.
    try:
        for number, batch in enumerate(
            DataLoader(Numbers(10**7, load_s=0.001), batch_size=4, num_workers=int(sys.argv[1]))
        ):
            if number == 30:
                print("warm", flush=True)
    except KeyboardInterrupt:
        print("interrupted once", flush=True)
        time.sleep(float(sys.argv[2]))
        print("saved", flush=True)
        raise
"""


@pytest.mark.parametrize(("workers", "saving_s"), [("2", "0"), ("0", "1.5")])
def test_ctrl_c_in_a_terminal(project, nothing_left, workers: str, saving_s: str) -> None:
    project.write("train.py", TRAIN)
    terminal = pexpect.spawn(
        "unstarve", ["run", "-o", "run.unstarve", "train.py", workers, saving_s],
        cwd=str(project.folder), env=project.options()["env"], timeout=180, encoding="utf-8",
    )  # fmt: skip
    terminal.expect_exact("warm")
    nothing_left(psutil.Process(terminal.pid))
    terminal.sendcontrol("c")
    terminal.expect_exact("interrupted once")
    terminal.expect_exact("saved")
    terminal.expect_exact("KeyboardInterrupt")
    terminal.expect_exact("run file: run.unstarve")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.signalstatus == signal.SIGINT
    check_recorded(project, -signal.SIGINT)


@pytest.mark.parametrize(("to", "workers"), [("unstarve", "2"), ("everybody", "0")])
def test_an_interrupt_without_a_terminal(project, nothing_left, to: str, workers: str) -> None:
    project.write("train.py", TRAIN)
    launcher = project.start("run", "-o", "run.unstarve", "train.py", workers, "0", start_new_session=True)
    assert launcher.stdout.readline() == "warm\n"
    nothing_left(psutil.Process(launcher.pid))
    if to == "unstarve":
        launcher.send_signal(signal.SIGINT)
    else:
        os.killpg(launcher.pid, signal.SIGINT)
    out, shown = launcher.communicate(timeout=180)
    assert out == "interrupted once\nsaved\n"
    assert launcher.returncode == -signal.SIGINT
    assert shown.count("KeyboardInterrupt") >= 1
    assert "run file: run.unstarve" in shown
    check_recorded(project, -signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT])
def test_a_signal_for_unstarve_reaches_the_training(project, nothing_left, number: signal.Signals) -> None:
    project.write("train.py", TRAIN)
    launcher = project.start("run", "-o", "run.unstarve", "train.py", "0", "0")
    assert launcher.stdout.readline() == "warm\n"
    nothing_left(psutil.Process(launcher.pid))
    launcher.send_signal(number)
    launcher.communicate(timeout=180)
    assert launcher.returncode == -number
    report = project.report()
    assert report["run"]["exit_code"] == -number
    assert report["run"]["cut_short"]
    assert report["run"]["steps"] >= 10  # all but the last 50 ms


def test_a_training_that_handles_a_signal_ends_as_it_likes(project) -> None:
    project.write(
        "train.py",
        """
        import os, signal, sys
        from data import *
        def save(number, frame):
            os.write(1, b"saved\\n")  # "warm" may not be out of print() yet, which is not to be entered twice
            sys.exit(4)
        signal.signal(signal.SIGTERM, save)
        for number, batch in enumerate(DataLoader(Numbers(10**7, load_s=0.001), batch_size=4)):
            if number == 5:
                print("warm", flush=True)
        """,
    )
    launcher = project.start("run", "-o", "run.unstarve", "train.py")
    assert launcher.stdout.readline() == "warm\n"
    launcher.terminate()
    out, _ = launcher.communicate(timeout=180)
    assert (launcher.returncode, out) == (4, "saved\n")
    assert not project.report()["run"]["cut_short"]


def test_a_signal_that_was_ignored_stays_ignored(project) -> None:
    project.write("train.py", "import signal; print(signal.getsignal(signal.SIGHUP))")
    done = project.call("nohup", "unstarve", "run", "train.py", stdin=subprocess.DEVNULL)
    assert done.stdout == "1\n" or "SIG_IGN" in done.stdout


def check_recorded(project, exit_code: int) -> None:
    report = project.report()
    assert report["run"]["exit_code"] == exit_code
    assert report["run"]["steps"] >= 30
    assert not report["run"]["cut_short"]
    assert [path.name for path in project.folder.glob("run.unstarve*")] == ["run.unstarve"]
    assert not Path(project.folder, "core").exists()
