"""Workers read shared lists without copying them, however they are started, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from shared_sources import Listed, Measured, read_all
from unstarve import share

METHODS = ("fork", "spawn", "forkserver")
DEADLINE_S = 120.0
needs_memfd = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no memfd")


def batches(dataset: Any, method: str | None) -> list[Any]:
    workers = 0 if method is None else 2
    return list(DataLoader(dataset, 500, num_workers=workers, multiprocessing_context=method))


@pytest.mark.parametrize("method", METHODS)
def test_workers_give_the_same_batches(method: str) -> None:
    dataset = Listed(3000)
    expected = batches(dataset, None)
    found = batches(share(dataset, min_bytes=0), method)
    for batch, plain in zip(found, expected, strict=True):
        assert batch[:2] == plain[:2]
        assert batch[2].equal(plain[2])
        assert batch[3].equal(plain[3])


def test_a_child_gets_a_handle_of_a_few_bytes() -> None:
    small, large = (len(ForkingPickler.dumps(share(Listed(count), min_bytes=0))) for count in (10, 20_000))
    assert large < small + 100 < 3000


@needs_memfd
@pytest.mark.parametrize("method", METHODS)
def test_reading_a_shared_list_dirties_no_memory_of_the_worker(method: str) -> None:
    plain, shared = Measured(200_000), share(Measured(200_000))
    read_all(shared.texts)  # pages that only the worker has count as its own
    grown = {
        kind: next(iter(DataLoader(dataset, None, num_workers=1, multiprocessing_context=method)))
        for kind, dataset in (("plain", plain), ("shared", shared))
    }
    list_bytes = 200_000 * 70
    assert grown["shared"] < list_bytes / 10
    if method == "fork":  # under the others, the worker had its own list before it read it
        assert grown["plain"] > list_bytes / 2


KILLED = """
import sys, time
from shared_sources import Listed
from torch.utils.data import DataLoader
from unstarve import share

if __name__ == "__main__":
    dataset = share(Listed(30_000))
    batches = iter(DataLoader(dataset, 10, num_workers=2, multiprocessing_context=sys.argv[1]))
    next(batches)
    print("ready", flush=True)
    time.sleep(600)
"""


@needs_memfd
@pytest.mark.parametrize("method", METHODS)
def test_a_killed_training_leaves_no_memory_behind(method: str, tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    helpers = str(Path(__file__).parents[4] / "helpers")
    command = [sys.executable, str(script), method]
    paths = os.pathsep.join([helpers, os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
        start_new_session=True,
    ) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "ready\n"
            held = holders()
            assert running.pid in held
        finally:  # all of it: torch's workers under forkserver outlive a killed training
            os.killpg(running.pid, signal.SIGKILL)
    deadline_s = time.monotonic() + DEADLINE_S
    while held & holders():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    assert not list(Path("/dev/shm").glob("*unstarve-share*"))


def holders() -> set[int]:
    """Processes that have memory of `unstarve.share`, other than this one."""
    found = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                mapped = (process / "maps").read_text()
            except OSError:  # it has ended, or belongs to somebody else
                continue
            if "memfd:unstarve-share" in mapped:
                found.add(int(process.name))
    return found
