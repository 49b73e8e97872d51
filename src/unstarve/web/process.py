"""One job in a process of its own, of low priority, which may take only so much memory and time.

The processes are forked from one that has loaded the analysis and has run nothing else: a job begins within
milliseconds, and whatever a file does to its process, the next job begins afresh.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from unstarve.errors import JobError, JobMemoryError, JobTimeoutError, UnstarveError
from unstarve.words import size

_NICER = 10

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one job may take."""

    seconds: float
    memory_bytes: int
    """Of address space."""


class JobProcess(Generic[T]):
    """One job. `result` belongs to one thread; any thread may `kill` it, before it has begun, too."""

    def __init__(self, allowance: Allowance, job: Callable[..., T], args: tuple[Any, ...]) -> None:
        self._allowance = allowance
        self._job = job
        self._args = args
        self._process: BaseProcess | None = None
        self._killed = False

    def result(self) -> T:
        """Run it, wait for it, and return what the job returns.

        Raises what the job raises, `JobTimeoutError`, `JobMemoryError`, or `JobError` when its process ended.
        """
        receiving, sending = multiprocessing.Pipe(duplex=False)
        with receiving:
            with sending:
                self._start(sending)
            try:
                return self._answer(receiving)
            finally:
                self.kill()
                if self._process is not None:
                    self._process.join()

    def kill(self) -> None:
        """End it now: `result` raises `JobError`. Never waits, unlike a start, which may take a second."""
        self._killed = True
        if self._process is not None and self._process.is_alive():
            self._process.kill()

    def _start(self, sending: Connection) -> None:
        arguments = (sending, self._allowance.memory_bytes, self._job, self._args)
        process = _context().Process(target=_work, args=arguments, daemon=True)
        if not self._killed:
            with _interrupts_held():
                process.start()
            self._process = process
        if self._killed:  # perhaps while it started, when there was nothing to kill yet
            self.kill()

    def _answer(self, receiving: Connection) -> T:
        try:
            if not receiving.poll(self._allowance.seconds):
                raise JobTimeoutError(
                    f"the analysis took longer than {self._allowance.seconds:g} s and was stopped; "
                    "`unstarve serve --max-time` allows more"
                )
            is_done, answer = receiving.recv()
        except EOFError:
            raise JobError("the process that analysed this run crashed; the file may be damaged") from None
        if is_done:
            result: T = answer
            return result
        if isinstance(answer, MemoryError):
            raise JobMemoryError(
                f"the analysis takes more than {size(self._allowance.memory_bytes)} of memory and was "
                "stopped; `unstarve serve --max-memory` allows more"
            )
        raise answer


def _context() -> multiprocessing.context.ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["unstarve.web.jobs"])
    return context


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """A process started in here never hears of Ctrl-C, which is the server's, not even while it begins."""
    resource_tracker.ensure_running()  # which unblocks the signal again where it has to be started first
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(sending: Connection, memory_bytes: int, job: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """In the new process."""
    _begin(memory_bytes)
    try:
        sending.send((True, job(*args)))
    except (UnstarveError, MemoryError) as error:
        sending.send((False, error if isinstance(error, UnstarveError) else MemoryError()))
    except Exception as error:  # whatever it is, the server says it and goes on
        sending.send((False, JobError(f"this run cannot be analysed: {error!r}")))


def _begin(memory_bytes: int) -> None:
    """The cores are training's, a crash needs no core file, and without the server there is nothing to do."""
    with contextlib.suppress(OSError):
        os.nice(_NICER)
    _limit(resource.RLIMIT_AS, memory_bytes)
    _limit(resource.RLIMIT_CORE, 0)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_leave_with, args=(parent.sentinel,), daemon=True).start()


def _limit(what: int, most: int) -> None:
    hard = resource.getrlimit(what)[1]
    least = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (least, least))


def _leave_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
