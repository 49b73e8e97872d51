"""What the scripts of the lab "When it breaks" read from, and the limits that they run under.

The server loses a request, the table is large, the store takes long to open: all of it is made up and safe
for the machine. The table's file has holes where its numbers would be.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import torch

from unstarve.labs.started import started_in

SAMPLES = 256
VALUES = 16_384
_LOST_S = 90.0
"""How long a lost request takes: longer than anybody waits."""
_OPENING_S = 0.7
_LIMIT_BYTES = 256 << 20
_SHARED_BYTES = 64 << 20
_LOOK_S = 0.02
_COLUMNS = 400_000


def sample(index: int) -> torch.Tensor:
    """A sample: 16,384 numbers, the first of them its index."""
    values = torch.full((VALUES,), float(index % 7))
    values[0] = index
    return values


class Server:
    """Sends samples, and loses the first request for one of them."""

    def __init__(self, folder: Path) -> None:
        self._lost = started_in(folder).seed % SAMPLES

    def get(self, index: int, timeout_s: float | None = None) -> torch.Tensor:
        """Ask for a sample. Raises `TimeoutError` if there is no answer in time."""
        if index == self._lost:
            self._lost = -1
            time.sleep(_LOST_S if timeout_s is None else min(timeout_s, _LOST_S))
            if timeout_s is not None:
                raise TimeoutError(f"no answer within {timeout_s} s")
        return sample(index)


class Store:
    """Samples in a file whose table of contents takes long to read."""

    def __init__(self) -> None:
        time.sleep(_OPENING_S)

    def get(self, index: int) -> torch.Tensor:
        """Read a sample."""
        return sample(index)


def table_file(folder: Path) -> Path:
    """A file of 256 rows and 400 MB, written if need be. A row begins with its number."""
    path = folder / "table.npy"
    if not path.exists():
        shape = (SAMPLES, _COLUMNS)
        table = np.lib.format.open_memmap(path, "w+", np.float32, shape)
        table[:, 0] = np.arange(SAMPLES)
        table.flush()
    return path


def limit_memory() -> None:
    """Let this process and its workers allocate no more than 256 MB each beyond what they have.

    The limit of a container ends a process. Here an allocation fails instead, and the machine is safe.
    """
    torch.set_num_threads(1)  # the stacks of threads count, too
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = _data_bytes() + _LIMIT_BYTES
    if most == resource.RLIM_INFINITY or limit < most:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, most))


def limit_shared_memory() -> None:
    """Let the batches of this training take no more than 64 MB of /dev/shm, Docker's default.

    Only root could make a smaller /dev/shm. So a thread counts the batches that are in the real one, and
    sends a worker the signal that the kernel would send it.
    """
    threading.Thread(target=_watch_shared_memory, args=(os.getpid(),), daemon=True).start()


def _watch_shared_memory(training: int) -> None:
    process = psutil.Process(training)
    while True:
        workers = [child.pid for child in process.children(recursive=True)]
        held = {pid: shared_files(pid) for pid in (training, *workers)}
        files = {inode: used for of_one in held.values() for inode, used in of_one.items()}
        if workers and sum(files.values()) > _SHARED_BYTES:
            with contextlib.suppress(ProcessLookupError):
                os.kill(max(workers, key=lambda pid: sum(held[pid].values())), signal.SIGBUS)
            return
        time.sleep(_LOOK_S)


def shared_files(pid: int) -> dict[int, int]:
    """The files in /dev/shm that a process has open, by inode, and the bytes of each."""
    found = {}
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(OSError):  # closed meanwhile
            if str(link.readlink()).startswith("/dev/shm/"):
                state = link.stat()
                found[state.st_ino] = 512 * state.st_blocks
    return found


def _data_bytes() -> int:
    status = Path("/proc/self/status").read_text("utf-8")
    return int(status.split("VmData:")[1].split()[0]) << 10
