"""Processes of low priority that do the jobs: the server goes on answering, and a file that takes a process
down with it takes no more than that."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, ParamSpec, TypeVar

from unstarve.errors import RunFileError, StoppedError

_MOST_PROCESSES = 4
_NICER = 10

P = ParamSpec("P")
T = TypeVar("T")


class _Context(SpawnContext):
    """Remembers whom it started: the pool itself has no way to end a job."""

    def __init__(self) -> None:
        self.started: list[SpawnProcess] = []

    def Process(self, *args: Any, **kwargs: Any) -> SpawnProcess:  # type: ignore[override]
        process = SpawnProcess(*args, **kwargs)
        self.started.append(process)
        return process


class Desk:
    """Does jobs elsewhere. To be used from one event loop, and closed in the end.

    `make_pool` replaces the processes, with threads for instance.
    """

    def __init__(
        self, background: int | None = None, make_pool: Callable[[], Executor] | None = None
    ) -> None:
        self.background = background or max(1, min(_MOST_PROCESSES, (os.cpu_count() or 2) - 1))
        """How many jobs that nobody waits for may run at a time; there is one process more than that."""
        self._context = _Context()
        self._make_pool = make_pool or self._processes
        self._pool: Executor | None = None
        self._alone = asyncio.Lock()
        self._closed = False

    async def do(self, job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The job's result or exception; one that ends its process is tried once more, then refused."""
        try:
            return await self._submit(job, *args, **kwargs)
        except BrokenProcessPool:
            async with self._alone:  # another job may have broken the pool; the guilty one does it again
                try:
                    return await self._submit(job, *args, **kwargs)
                except BrokenProcessPool:
                    raise RunFileError("working on this run ended the process (out of memory?)") from None

    def close(self) -> None:
        """End all jobs now."""
        self._closed = True
        self._end()

    async def _submit(self, job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._closed:
            raise StoppedError("the server is stopping")
        if self._pool is None:
            self._pool = self._make_pool()
        pool = self._pool
        try:
            with _interrupts_held():  # handing over may start a process
                handed_over = pool.submit(job, *args, **kwargs)
            return await asyncio.wrap_future(handed_over)
        except BrokenProcessPool:
            if self._pool is pool:
                self._end()
            raise

    def _processes(self) -> Executor:
        return ProcessPoolExecutor(self.background + 1, mp_context=self._context, initializer=_begin)

    def _end(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        started, self._context.started = self._context.started, []
        pool.shutdown(wait=False)  # what waits in it breaks with the processes, unlike what was cancelled
        for process in started:
            with contextlib.suppress(ValueError, AttributeError):  # it has not begun, or is closed already
                process.terminate()


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """A process started in here never hears of Ctrl-C, which is the server's, not even while it begins."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin() -> None:
    """In a new process: the cores are training's, and without the server there is nothing to do."""
    with contextlib.suppress(OSError):
        os.nice(_NICER)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_leave_with, args=(parent.sentinel,), daemon=True).start()


def _leave_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
