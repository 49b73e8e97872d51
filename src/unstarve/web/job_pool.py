"""Analysis jobs, run in processes beside the server.

A few run at a time; requests for the same job share one; a job that nobody waits for any more is ended. Each
job has its own process of low priority with limits on memory and time. The processes are forked from one that
has loaded the analysis and has run nothing else: a job begins within milliseconds, and whatever a file does
to its process, the next job begins afresh.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import resource
import signal
import threading
from collections.abc import Awaitable, Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar, TypeVarTuple

from unstarve.errors import (
    JobError,
    JobMemoryError,
    JobTimeoutError,
    ServerBusyError,
    StoppedError,
    UnstarveError,
)
from unstarve.machine import available_bytes, usable_cores
from unstarve.words import size

_MOST_BACKGROUND = 4
_FOREGROUND = 2
LEAST_MEMORY_BYTES = 10**9
_NICER = 10

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Runner = Callable[..., Awaitable[Any]]
"""Runs a job with its arguments; cancelled when nobody waits for it any more."""


def _background() -> int:
    return max(1, min(_MOST_BACKGROUND, usable_cores() - 1))


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Limits of one job and of all jobs together."""

    seconds: float = 120.0
    """Longest time of one job, and longest wait for its turn."""
    memory_bytes: int | None = None
    """Most memory of one job; None: an equal share of the memory that is free when the server starts."""
    waiting: int = 32
    """Most jobs waiting for their turn; any more are refused."""
    background: int = _background()
    """Most jobs for the list of runs at a time; two more can run for open pages."""

    @property
    def at_once(self) -> int:
        return self.background + _FOREGROUND

    def allowance(self) -> Allowance:
        """The limits of one job on this machine."""
        share = available_bytes() // self.at_once
        return Allowance(self.seconds, self.memory_bytes or max(share, LEAST_MEMORY_BYTES))


class JobPool:
    """Runs jobs in other processes. Belongs to one event loop; must be closed.

    `runner` replaces the processes, for instance by threads.
    """

    def __init__(self, limits: JobLimits | None = None, runner: Runner | None = None) -> None:
        self.limits = limits or JobLimits()
        self._allowance = self.limits.allowance()
        self._threads = ThreadPoolExecutor(self.limits.at_once, "unstarve-job")
        """Each waits for one process."""
        self._runner = runner or self._in_process
        self._turns = asyncio.Semaphore(self.limits.at_once)
        self._waiting = 0
        self._running: dict[Hashable, _SharedJob] = {}
        self._closed = False

    async def do(self, job: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run the job and return its result; requests for the same job share it.

        Raises what the job raises, `JobError` when it exceeds its limits, `ServerBusyError` when too many
        jobs are waiting. The job is ended when all who asked for it have been cancelled.
        """
        if self._closed:
            raise StoppedError("the server is stopping")
        key = (job, args)
        shared = self._running.get(key)
        if shared is None:
            shared = self._running[key] = _SharedJob(asyncio.ensure_future(self._work(job, args)))
        shared.wanted += 1
        try:
            result: T = await asyncio.shield(shared.task)
            return result
        except asyncio.CancelledError:
            if self._closed:
                raise StoppedError("the server is stopping") from None
            raise
        finally:
            shared.wanted -= 1
            if shared.task.done() or not shared.wanted:
                shared.task.cancel()
                if self._running.get(key) is shared:
                    del self._running[key]

    def close(self) -> None:
        """End all jobs now."""
        self._closed = True
        for shared in self._running.values():
            shared.task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _work(self, job: Callable[..., T], args: tuple[Any, ...]) -> T:
        await self._wait_for_turn()
        try:
            result: T = await self._runner(job, *args)
            return result
        finally:
            self._turns.release()

    async def _wait_for_turn(self) -> None:
        if self._waiting >= self.limits.waiting:
            raise ServerBusyError("too many requests are waiting already; try again in a minute")
        self._waiting += 1
        try:
            async with asyncio.timeout(self.limits.seconds):
                await self._turns.acquire()
        except TimeoutError:
            raise ServerBusyError("the server is busy with other runs; try again in a minute") from None
        finally:
            self._waiting -= 1

    async def _in_process(self, job: Callable[..., T], *args: Any) -> T:
        process = JobProcess(self._allowance, job, args)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, process.result)
        except asyncio.CancelledError:
            process.kill()
            raise


@dataclass(slots=True)
class _SharedJob:
    """A job, and how many requests wait for it."""

    task: asyncio.Task[Any]
    wanted: int = 0


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits of one job."""

    seconds: float
    memory_bytes: int
    """Of address space."""


class JobProcess(Generic[T]):
    """One job. Only one thread may call `result`; any thread may `kill` it, even before it has begun."""

    def __init__(self, allowance: Allowance, job: Callable[..., T], args: tuple[Any, ...]) -> None:
        self._allowance = allowance
        self._job = job
        self._args = args
        self._process: BaseProcess | None = None
        self._killed = False

    def result(self) -> T:
        """Run the job, wait for it and return its result.

        Raises what the job raises, `JobTimeoutError`, `JobMemoryError`, or `JobError` if its process died.
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
        """End it now: `result` raises `JobError`. Never blocks, unlike a start, which may take a second."""
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
                f"the analysis needs more than {size(self._allowance.memory_bytes)} of memory and was "
                "stopped; `unstarve serve --max-memory` allows more"
            )
        raise answer


def _context() -> multiprocessing.context.ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["unstarve.web.jobs"])
    return context


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """A process started in here never receives Ctrl-C, not even while it starts: that is for the server."""
    resource_tracker.ensure_running()  # starting it would unblock the signal again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(sending: Connection, memory_bytes: int, job: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Runs in the new process."""
    _begin(memory_bytes)
    try:
        sending.send((True, job(*args)))
    except (UnstarveError, MemoryError) as error:
        sending.send((False, error if isinstance(error, UnstarveError) else MemoryError()))
    except Exception as error:  # the server reports it and goes on
        sending.send((False, JobError(f"this run cannot be analysed: {error!r}")))


def _begin(memory_bytes: int) -> None:
    """Leave the cores to training, write no core file, and exit with the server."""
    with contextlib.suppress(OSError):
        os.nice(_NICER)
    _limit(resource.RLIMIT_AS, memory_bytes)
    _limit(resource.RLIMIT_CORE, 0)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_with, args=(parent.sentinel,), daemon=True).start()


def _limit(what: int, most: int) -> None:
    hard = resource.getrlimit(what)[1]
    least = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (least, least))


def _exit_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
