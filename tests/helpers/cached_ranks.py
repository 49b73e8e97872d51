"""Ranks of a training as processes that know nothing of each other but their environment."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from sample_datasets import Logged
from unstarve import CachedDataset


def run_rank(wire: Connection, rank: int, log: Path, count: int, seconds: float, arguments: Any) -> None:
    os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": str(log)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        cached = CachedDataset(Logged(log, count, seconds), **arguments)
    wire.send("cached")
    while True:
        command = wire.recv()
        if command == "inode":
            wire.send(os.fstat(cached._held._store.region.fd).st_ino)  # type: ignore[union-attr] # a dataset's
        elif command == "right":
            samples = [cached[index] for index in range(count)]
            wire.send(all(int(x[0]) == int(x[-1]) == y == i for i, (x, y) in enumerate(samples)))
        elif command == "warned":
            wire.send([str(each.message) for each in warned])
        else:
            return


class Rank:
    """A rank of a training."""

    def __init__(self, *arguments: Any) -> None:
        context = multiprocessing.get_context("fork")
        self._wire, theirs = context.Pipe()
        self.process = context.Process(target=run_rank, args=(theirs, *arguments))
        self.process.start()
        theirs.close()

    def ask(self, command: str) -> Any:
        self._wire.send(command)
        return self.answer()

    def answer(self) -> Any:
        assert self._wire.poll(180), "no answer"
        return self._wire.recv()

    def end(self) -> int | None:
        if self.process.is_alive():
            self._wire.send("end")
        self.process.join(180)
        return self.process.exitcode


@contextmanager
def ranks_in(folder: Path) -> Iterator[Callable[..., Rank]]:
    """Give a function that starts ranks, which are gone at the end."""
    ranks: list[Rank] = []

    def start(rank: int, count: int = 40, seconds: float = 0.0, **arguments: Any) -> Rank:
        ranks.append(Rank(rank, folder / "log", count, seconds, arguments))
        return ranks[-1]

    yield start
    for rank in ranks:
        rank.process.kill()
        rank.process.join()


def reads(folder: Path) -> Counter[int]:
    """How often each sample was read, by all ranks that log in this folder."""
    log = folder / "log"
    return Counter(int(line) for line in log.read_text().split()) if log.exists() else Counter()


def wait_for(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < end_s, "waited in vain"
        time.sleep(0.005)
