"""Jobs, done in processes beside the server: only so many at a time, the same one once, and none that nobody
waits for any more."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar, TypeVarTuple

import psutil

from unstarve.errors import ServerBusyError, StoppedError
from unstarve.web.process import Allowance, JobProcess

_MOST_BACKGROUND = 4
_FOREGROUND = 2
LEAST_MEMORY_BYTES = 10**9

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Doer = Callable[..., Awaitable[Any]]
"""Does a job, given with its arguments; to be cancelled when nobody wants it any more."""


def _background() -> int:
    return max(1, min(_MOST_BACKGROUND, (os.cpu_count() or 2) - 1))


@dataclass(frozen=True, slots=True)
class JobLimits:
    """What the jobs may take, alone and together."""

    seconds: float = 120.0
    """For one job; also how long a job may wait for its turn."""
    memory_bytes: int | None = None
    """For one job; None: an equal share of the memory that is free when the server starts."""
    waiting: int = 32
    """Jobs that wait for their turn; further ones are refused."""
    background: int = _background()
    """Jobs for the list of runs that may run at a time; two more can run for those who wait for a page."""

    @property
    def at_once(self) -> int:
        return self.background + _FOREGROUND

    def allowance(self) -> Allowance:
        """What one job may take on this machine."""
        share = psutil.virtual_memory().available // self.at_once
        return Allowance(self.seconds, self.memory_bytes or max(share, LEAST_MEMORY_BYTES))


class Desk:
    """Does jobs elsewhere. To be used from one event loop, and closed in the end.

    `doer` replaces the processes, with threads for instance.
    """

    def __init__(self, limits: JobLimits | None = None, doer: Doer | None = None) -> None:
        self.limits = limits or JobLimits()
        self._allowance = self.limits.allowance()
        self._threads = ThreadPoolExecutor(self.limits.at_once, "unstarve-job")
        """Each waits for one process."""
        self._doer = doer or self._in_process
        self._turns = asyncio.Semaphore(self.limits.at_once)
        self._waiting = 0
        self._under_way: dict[Hashable, _UnderWay] = {}
        self._closed = False

    async def do(self, job: Callable[[*Ts], T], *args: *Ts) -> T:
        """The job's result or exception; it ends when all who asked for the same were cancelled.

        Raises `JobError` when it needed more than it may take, `ServerBusyError` when too many wait already.
        """
        if self._closed:
            raise StoppedError("the server is stopping")
        key = (job, args)
        shared = self._under_way.get(key)
        if shared is None:
            shared = self._under_way[key] = _UnderWay(asyncio.ensure_future(self._work(job, args)))
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
                if self._under_way.get(key) is shared:
                    del self._under_way[key]

    def close(self) -> None:
        """End all jobs now."""
        self._closed = True
        for shared in self._under_way.values():
            shared.task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _work(self, job: Callable[..., T], args: tuple[Any, ...]) -> T:
        await self._wait_for_turn()
        try:
            result: T = await self._doer(job, *args)
            return result
        finally:
            self._turns.release()

    async def _wait_for_turn(self) -> None:
        if self._waiting >= self.limits.waiting:
            raise ServerBusyError("the server has too much to do already; try again in a minute")
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
class _UnderWay:
    """A job, and how many wait for it."""

    task: asyncio.Task[Any]
    wanted: int = 0
