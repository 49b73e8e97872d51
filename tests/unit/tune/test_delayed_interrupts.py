"""Ctrl-C while workers are started: it is raised, once, and costs no batch that is still to come."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from typing import Any

import pytest
from torch.utils.data import DataLoader

from sample_datasets import Counted
from unstarve.tune.autotune import AutotunedLoader
from unstarve.tune.step_window import WindowPace
from unstarve.tune.tuned_epoch import delay_interrupts

_CONTEXT = multiprocessing.get_context("fork")
_at_fork: list[Any] = []
"""What to do with the next fork of this process."""


def _press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def _do_at_fork() -> None:
    if _at_fork:
        _at_fork.pop()()


os.register_at_fork(before=_do_at_fork)


def _exit_code(target: Any) -> int | None:
    child = _CONTEXT.Process(target=target)
    child.start()
    child.join()
    return child.exitcode


def _interrupt_oneself() -> None:
    try:
        _press()
    except KeyboardInterrupt:
        os._exit(7)


def _interrupted_twice(passed: list[str]) -> None:
    with delay_interrupts():
        _press()
        with delay_interrupts():
            _press()
        passed.append("to the end")


@delay_interrupts()
def _interrupted_and_failing() -> None:
    _press()
    raise RuntimeError("a worker was interrupted, too")


def test_it_comes_at_the_end_and_once() -> None:
    passed: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        _interrupted_twice(passed)
    assert passed == ["to the end"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_it_comes_instead_of_what_else_went_wrong() -> None:
    with pytest.raises(KeyboardInterrupt) as raised:
        _interrupted_and_failing()
    assert isinstance(raised.value.__context__, RuntimeError)


def test_a_fork_does_not_swallow_it() -> None:
    _at_fork.append(_press)
    with pytest.raises(KeyboardInterrupt), delay_interrupts():
        assert _exit_code(_interrupt_oneself) == 7  # the child is interrupted at once
    assert not _at_fork


def test_elsewhere_than_in_the_main_thread_nothing_is_changed() -> None:
    found = []

    def look() -> None:
        with delay_interrupts():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


def test_an_ignored_interrupt_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with delay_interrupts():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("no_workers_left")
def test_training_may_go_on_after_it(script: Any) -> None:
    script((1, 2), (2, 1), (0, None))
    loader = DataLoader(Counted(60), batch_size=2)
    batches = iter(AutotunedLoader(loader, {"pace": WindowPace(min_steps=1, min_s=0.0, max_s=0.0)}))
    _at_fork.append(_press)  # as the first worker is started
    indices, interrupts = [], 0
    while True:
        try:
            indices.append(next(batches)[1].tolist())
        except KeyboardInterrupt:
            interrupts += 1
        except StopIteration:
            break
    assert interrupts == 1
    # The batch that was to be handed out just then is gone, as with torch; all others come, in order.
    assert indices == sorted(indices)
    assert len(indices) == len(loader) - 1
