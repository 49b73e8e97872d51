"""Jobs in processes: within limits, once for all who want the same, and none that nobody waits for."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from unstarve.errors import JobError, JobMemoryError, JobTimeoutError, ServerBusyError, StoppedError
from unstarve.web.job_pool import LEAST_MEMORY_BYTES, JobLimits, JobPool

LONGEST_S = 60


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _take_memory(count: int) -> int:
    return len(bytearray(count))


def _never_end(told: Path) -> None:
    """Say who we are, then go on and on."""
    told.write_text(str(os.getpid()))
    time.sleep(10 * LONGEST_S)


def with_jobs(work: Callable[[JobPool], Awaitable[Any]], limits: JobLimits | None = None) -> Any:
    """What comes of the work, by a pool with processes."""

    async def run() -> Any:
        jobs = JobPool(limits or JobLimits(background=1))
        try:
            return await work(jobs)
        finally:
            jobs.close()

    return asyncio.run(run())


async def process_of(told: Path) -> psutil.Process:
    """The process of `_never_end`, once it has begun."""
    deadline = time.monotonic() + LONGEST_S
    while not (told.exists() and told.read_text()):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    return psutil.Process(int(told.read_text()))


def is_gone(process: psutil.Process) -> bool:
    return psutil.wait_procs([process], LONGEST_S)[1] == []


@pytest.mark.parametrize(
    ("job", "args", "error", "said"),
    [
        (_die, (), JobError, "crashed"),
        (_take_memory, (2 * LEAST_MEMORY_BYTES,), JobMemoryError, "more than 1.0 GB of memory"),
        (int, ("x",), JobError, "cannot be analysed: ValueError"),
    ],
)
def test_a_job_that_exceeds_its_memory_or_crashes_is_refused_and_the_next_one_runs(
    job: Callable[..., Any], args: tuple[Any, ...], error: type[Exception], said: str
) -> None:
    async def work(jobs: JobPool) -> int:
        with pytest.raises(error, match=said):
            await jobs.do(job, *args)
        return await jobs.do(int, "7")

    assert with_jobs(work, JobLimits(LONGEST_S, LEAST_MEMORY_BYTES, background=1)) == 7


def test_a_job_that_takes_too_long_is_ended() -> None:
    async def work(jobs: JobPool) -> None:
        with pytest.raises(JobTimeoutError, match="longer than 1 s"):
            await jobs.do(time.sleep, 10 * LONGEST_S)

    with_jobs(work, JobLimits(1, background=1))


def test_a_job_ends_when_the_last_one_waiting_for_it_leaves(tmp_path: Path) -> None:
    async def work(jobs: JobPool) -> psutil.Process:
        one, other = (asyncio.ensure_future(jobs.do(_never_end, tmp_path / "told")) for _ in range(2))
        process = await process_of(tmp_path / "told")
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
        assert process.is_running()
        assert not other.done()
        other.cancel()
        assert await asyncio.to_thread(is_gone, process)
        return process

    with_jobs(work)


def test_the_same_job_runs_once_for_all_who_wait_for_it() -> None:
    async def work(jobs: JobPool) -> set[int]:
        return set(await asyncio.gather(*(jobs.do(os.getpid) for _ in range(5))))

    assert len(with_jobs(work)) == 1


def test_an_abandoned_job_is_started_again_for_the_next_request() -> None:
    begun: list[int] = []

    async def begin(job: Callable[..., Any], *args: Any) -> Any:
        begun.append(1)
        if len(begun) == 1:
            await asyncio.Event().wait()
        return job(*args)

    async def work() -> int:
        jobs = JobPool(JobLimits(background=1), begin)
        first = asyncio.ensure_future(jobs.do(int, "7"))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        return await jobs.do(int, "7")

    assert asyncio.run(work()) == 7


def test_running_and_waiting_jobs_are_limited() -> None:
    limits = JobLimits(background=1, waiting=2)
    running, most = [0], [0]

    async def work() -> list[Any]:
        go = asyncio.Event()

        async def begin(job: Callable[..., Any], *args: Any) -> Any:
            running[0] += 1
            most[0] = max(most[0], running[0])
            await go.wait()
            running[0] -= 1
            return job(*args)

        jobs = JobPool(limits, begin)
        asked = [asyncio.ensure_future(jobs.do(int, str(n))) for n in range(limits.at_once + 2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(ServerBusyError):
            await jobs.do(int, "99")
        go.set()
        return await asyncio.gather(*asked)

    assert asyncio.run(work()) == list(range(limits.at_once + 2))
    assert most == [limits.at_once]


def test_a_job_that_waits_too_long_for_its_turn_is_refused() -> None:
    async def never(job: Callable[..., Any], *args: Any) -> Any:
        await asyncio.Event().wait()

    async def work() -> None:
        jobs = JobPool(JobLimits(0.05, background=1), never)
        asked = [asyncio.ensure_future(jobs.do(int, str(n))) for n in range(jobs.limits.at_once)]
        await asyncio.sleep(0)
        with pytest.raises(ServerBusyError, match="busy"):
            await jobs.do(int, "99")
        assert not any(one.done() for one in asked)
        jobs.close()
        await asyncio.gather(*asked, return_exceptions=True)

    asyncio.run(work())


def test_closing_ends_running_jobs(tmp_path: Path) -> None:
    async def work(jobs: JobPool) -> psutil.Process:
        endless = asyncio.ensure_future(jobs.do(_never_end, tmp_path / "told"))
        process = await process_of(tmp_path / "told")
        jobs.close()
        with pytest.raises(StoppedError):
            await asyncio.wait_for(endless, LONGEST_S)
        with pytest.raises(StoppedError):
            await jobs.do(int, "7")
        return process

    assert is_gone(with_jobs(work))
