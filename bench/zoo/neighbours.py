"""Processes beside the training: they end with it, however it ends.

Run as a script this file is such a process: ``neighbours.py busy PARENT`` or
``neighbours.py serve PARENT LATENCY_MS``. Isolated from the caller's Python path, so that nothing that
watches the training watches them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

REPLY = b"x" * 4096


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """`count` unrelated processes that each want a core."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(_started("busy"))
        yield


@contextlib.contextmanager
def server(latency_ms: float) -> Iterator[int]:
    """A server on this machine that answers every byte with `REPLY` after `latency_ms`; its port."""
    with _started("serve", str(latency_ms)) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())


@contextlib.contextmanager
def _started(*words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-I", "-S", __file__, words[0], str(os.getpid()), *words[1:]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _be_busy(parent: int) -> None:
    while os.getppid() == parent:
        for _ in range(200_000):
            pass


async def _serve(parent: int, latency_s: float) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while await reader.read(1):
                await asyncio.sleep(latency_s)
                writer.write(REPLY)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        print(listening.sockets[0].getsockname()[1], flush=True)
        while os.getppid() == parent:
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1] == "busy":
        _be_busy(int(sys.argv[2]))
    else:
        asyncio.run(_serve(int(sys.argv[2]), float(sys.argv[3]) / 1e3))
