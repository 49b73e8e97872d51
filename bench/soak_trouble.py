"""The faults that `soak.py` injects into an epoch, and the counts that must be unchanged afterwards."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import os
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

import unstarve

SETTLE_S = 60
_NO_ROOM = (errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_TIMEOUT_S = 3
_SHM = Path("/dev/shm")


class WrongError(Exception):
    """A wrong batch, or an end that no user should see."""


@dataclass(frozen=True)
class Epoch:
    """What faults act on: a loader, its true samples, the disk it may write to."""

    make: Callable[[], Any]
    make_other: Callable[[], Any]
    """Makes a loader whose workers may be killed: the next epoch would miss persistent ones."""
    truth: torch.Tensor
    disk: Path | None
    """A small file system, if one could be mounted."""
    has_workers: bool

    def batches(self, loader: Any, timeout_s: float = 0) -> Iterator[Any]:
        """Yield its batches, each checked; at the end every sample must have come exactly once.

        A worker that cannot even send a batch reports it on stderr, as torch's do: only a timeout ends the
        wait.
        """
        seen: list[int] = []
        loader.timeout = timeout_s if self.has_workers else 0
        for x, index in loader:
            if not torch.equal(x, self.truth[index]):
                raise WrongError(f"the batch of samples {index.tolist()} is wrong")
            seen += index.tolist()
            yield x
        if sorted(seen) != list(range(len(self.truth))):
            raise WrongError(f"samples are missing or come twice: {sorted(seen)}")


def undisturbed(epoch: Epoch) -> None:
    for _ in epoch.batches(epoch.make()):
        pass


def left_early(epoch: Epoch) -> None:
    for number, _ in enumerate(epoch.batches(epoch.make())):
        if number == 1:
            break


def dropped(epoch: Epoch) -> None:
    iterator = iter(epoch.make())
    next(iterator)
    del iterator


def interrupted(epoch: Epoch) -> None:
    """Ctrl-C at any time: in the training process and, as from a terminal, in its workers.

    With workers, only after the first batch: torch loses workers that it was just starting.
    """
    others = _children()
    batches = epoch.batches(epoch.make_other())
    if epoch.has_workers:
        next(batches)

    def ctrl_c(number: int, frame: Any) -> None:
        for worker in _children() - others:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.send_signal(signal.SIGINT)
        raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt), _worker_lost():
        signal.signal(signal.SIGALRM, ctrl_c)
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0005, 0.02))
        try:
            for _ in batches:
                pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


def worker_killed(epoch: Epoch) -> None:
    """``kill -9`` of a worker: torch's error, unless all batches had arrived already."""
    others = _children()
    batches = epoch.batches(epoch.make_other())
    next(batches)
    with _worker_lost():
        (_children() - others).pop().kill()
        for _ in batches:
            pass


@contextlib.contextmanager
def _worker_lost() -> Iterator[None]:
    """Accept torch's errors for a worker that is gone, also while its batch was being received."""
    try:
        yield
    except (ConnectionError, EOFError):
        pass
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise


def _pids(others: set[psutil.Process]) -> list[int]:
    return [child.pid for child in _children() - others]


def _children() -> set[psutil.Process]:
    return set(psutil.Process().children())


def few_descriptors(epoch: Epoch) -> None:
    """Almost no descriptors left: the epoch works, or fails with an error that says so.

    With workers, only after the first batch: Python leaks a pipe when it cannot start a process.
    """
    others = _children()
    batches = epoch.batches(epoch.make_other(), timeout_s=_TIMEOUT_S)
    if epoch.has_workers:
        next(batches)
    limits = {pid: resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in (0, *_pids(others))}
    left = random.randrange(12)
    for pid, (_, hard) in limits.items():
        highest = max(int(entry.name) for entry in Path(f"/proc/{pid or 'self'}/fd").iterdir())
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 1 + left, hard))
    try:
        _finish_or_fail(batches)
    finally:
        resource.prlimit(0, resource.RLIMIT_NOFILE, limits[0])


def full_shm(epoch: Epoch) -> None:
    with _filled(_SHM):
        _finish_or_fail(_made(epoch))


def full_disk(epoch: Epoch) -> None:
    assert epoch.disk is not None
    with _filled(epoch.disk):
        _finish_or_fail(_made(epoch))


def _made(epoch: Epoch) -> Iterator[Any]:
    """A loader that is created when its first batch is requested."""
    yield from epoch.batches(epoch.make_other(), timeout_s=_TIMEOUT_S)


def _finish_or_fail(batches: Iterator[Any]) -> None:
    """All batches, or an error that names the scarce resource; from a worker it is a RuntimeError."""
    try:
        for _ in batches:
            pass
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
    except (RuntimeError, unstarve.UnstarveError):
        pass


@contextlib.contextmanager
def _filled(folder: Path) -> Iterator[None]:
    """Room for a few kilobytes only."""
    filler = folder / "filler"
    try:
        status = os.statvfs(folder)
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(status.f_bavail * status.f_frsize - 16384, 1))
        yield
    finally:
        filler.unlink(missing_ok=True)


@dataclass(frozen=True)
class Resources:
    """The resources that a process holds."""

    processes: int
    threads: int
    descriptors: int
    shm_bytes: int
    """Bytes in files of /dev/shm and in unnamed shared memory."""
    rss_bytes: int

    def counts(self) -> tuple[int, int, int, int]:
        return self.processes, self.threads, self.descriptors, self.shm_bytes


def resources() -> Resources:
    """Count what this process holds now, after a garbage collection."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    me = psutil.Process()
    return Resources(
        processes=len(me.children(recursive=True)),
        threads=me.num_threads(),
        descriptors=me.num_fds(),
        shm_bytes=_shm_bytes(),
        rss_bytes=me.memory_info().rss,
    )


def steady() -> Resources:
    """Count once the numbers are stable for a second: workers take a while to end."""
    deadline, now = time.monotonic() + SETTLE_S, resources()
    while True:
        time.sleep(1)
        before, now = now, resources()
        if now.counts() == before.counts() or time.monotonic() > deadline:
            return now


def settled(before: Resources) -> Resources:
    """Count once the numbers are back to what they were, or after a minute."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        now = resources()
        back = all(a <= b for a, b in zip(now.counts(), before.counts(), strict=True))
        if back or time.monotonic() > deadline:
            return now
        time.sleep(0.02)


def _shm_bytes() -> int:
    """Count files by their size, and this process's shared memory by its resident part."""
    status = Path("/proc/self/status").read_text().partition("RssShmem:")[2]
    return sum(file.stat().st_size for file in _SHM.iterdir()) + (int(status.split()[0]) << 10)


CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000


def mount_small(folder: Path, size_mb: int) -> bool:
    """Mount small file systems at /dev/shm and at `folder`, for this process and its children only.

    Returns False if the system does not allow it, as in some containers. Call it while there is one thread.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWNS if user == 0 else CLONE_NEWNS | CLONE_NEWUSER):
        return False
    try:
        if user:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"0 {user} 1")
            Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    except OSError:
        return False
    private = 1 << 18 | 1 << 14  # MS_PRIVATE | MS_REC: nobody else sees what is mounted here
    if libc.mount(b"none", b"/", None, private, None):
        return False
    size = f"size={size_mb}m".encode()
    return not any(libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", 0, size) for place in (_SHM, folder))
