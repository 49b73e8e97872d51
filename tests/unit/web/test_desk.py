"""Jobs in processes: one that goes down takes nobody with it, and all end with the desk."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import psutil
import pytest

from unstarve.errors import RunFileError, StoppedError
from unstarve.web.desk import Desk

LONGEST_S = 60


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def _begun(desk: Desk) -> list[psutil.Process]:
    """The desk's processes, each known to be working."""
    pids = {await desk.do(os.getpid)}
    return [psutil.Process(pid) for pid in pids]


def test_a_job_that_ends_its_process_is_refused_and_the_next_one_is_done() -> None:
    async def work() -> int:
        desk = Desk(1)
        try:
            with pytest.raises(RunFileError, match="ended the process"):
                await desk.do(_die)
            return await desk.do(int, "7")
        finally:
            desk.close()

    assert asyncio.run(work()) == 7


def test_closing_ends_jobs_that_would_go_on() -> None:
    async def work() -> list[psutil.Process]:
        desk = Desk(1)
        processes = await _begun(desk)
        endless = asyncio.ensure_future(desk.do(time.sleep, 10 * LONGEST_S))
        await asyncio.sleep(0)  # let it be handed over
        desk.close()
        with pytest.raises(StoppedError):
            await asyncio.wait_for(endless, LONGEST_S)
        with pytest.raises(StoppedError):
            await desk.do(int, "7")
        return processes

    processes = asyncio.run(work())
    assert psutil.wait_procs(processes, LONGEST_S)[1] == []
