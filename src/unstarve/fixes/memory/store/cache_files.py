"""Stores in files of the cache folder: made once, reused by the next run.

    NAME-KEY.cache     finished; never changes
    NAME-KEY.partial   being filled; the next run continues it unless the machine was rebooted
    NAME-KEY.lock      locked by the process that fills; removed afterwards

A finished file gets its name when all of it is on the disk. Parts of these files are pickled, so only files
of this user are opened, and never through a link.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unstarve.fixes.io.private_files import (
    NotOursError,
    make_private,
    open_private,
    open_private_folder,
    others_can_write,
)
from unstarve.fixes.memory.region import SharedRegion, open_file, sized
from unstarve.fixes.memory.store.sample_store import Store, StorePlan, boot_id, read_header, write_header

try:
    import fcntl
except ImportError:  # Windows: two processes may fill the same file
    fcntl = None  # type: ignore[assignment] # where the module is missing

_LAZILY = b"lazily"


@dataclass(frozen=True)
class CachePaths:
    """The files of one dataset's cache. `name` ends in a key that identifies the dataset."""

    folder: Path
    name: str

    @property
    def finished(self) -> Path:
        """The file that never changes."""
        return self.folder / f"{self.name}.cache"

    @property
    def partial(self) -> Path:
        """The file that is being filled."""
        return self.folder / f"{self.name}.partial"

    @property
    def lock(self) -> Path:
        """The file that the filling process locks."""
        return self.folder / f"{self.name}.lock"


def cache_folder(given: str | Path | None) -> Path:
    """Return the folder for caches and make it if needed: `given`, $UNSTARVE_CACHE, or ~/.cache/unstarve."""
    if given is None:
        given = os.environ.get("UNSTARVE_CACHE")
    if given is None:
        given = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unstarve"
    folder = Path(given).expanduser()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # what is in it is unpickled
    return folder


def own_folder(folder: Path) -> Path:
    """Return the folder itself, or this user's folder in one that others can write to.

    Raises NotOursError if that folder belongs to another user.
    """
    if others_can_write(folder):
        folder = folder / f"user-{os.geteuid()}"
        os.close(open_private_folder(folder))
    return folder


def open_finished(paths: CachePaths, samples: int) -> Store | None:
    """Return the finished store; None if there is no usable one."""
    with suppress(FileNotFoundError, NotOursError, ValueError):  # ValueError: empty
        region = open_file(paths.finished)
        header = read_header(region)
        if header is not None:
            store = Store(region, header[0])
            if store.plan.samples == samples and store.is_complete():
                return store
    return None


class FillClaim:
    """The right to fill a cache file. One process has it until it releases it or ends."""

    def __init__(self, paths: CachePaths, lock_fd: int) -> None:
        self._paths = paths
        self._owner_pid = os.getpid()
        self._release = weakref.finalize(self, _unlock, paths, lock_fd, self._owner_pid)

    def is_ours(self) -> bool:
        """Whether this process has the claim, rather than being a forked child of the one that has."""
        return os.getpid() == self._owner_pid

    def finish(self, store: Store) -> None:
        """Give a complete store its final name. If that fails, removes the file and raises OSError."""
        region = store.region
        try:
            os.ftruncate(region.fd, store.end)
            region.flush()
            self._paths.partial.rename(self._paths.finished)
            _flush_folder(self._paths.folder)
        except OSError:
            self.discard()
            raise
        region.path = self._paths.finished
        self._release()

    def discard(self) -> None:
        """Remove the unfinished file and release the claim."""
        with suppress(OSError):
            self._paths.partial.unlink()
        self._release()


def try_begin(paths: CachePaths, plan: StorePlan, *, lazy: bool) -> tuple[Store, FillClaim] | None:
    """Start to fill, or continue what a killed process has left; None while another process is filling.

    Raises OSError if the disk is full.
    """
    lock_fd = _try_lock(paths.lock)
    if lock_fd is None:
        return None
    claim = FillClaim(paths, lock_fd)
    os.truncate(lock_fd, 0)
    os.write(lock_fd, _LAZILY if lazy else b"")
    store = _continued(paths, plan)
    if store is None:
        try:
            store = _begun(paths, plan)
        except BaseException:  # also Ctrl-C: other processes wait for the claim
            claim.discard()
            raise
    return store, claim


def is_filled_lazily(paths: CachePaths) -> bool:
    """Whether the filling process fills lazily, so that waiting for it may never end."""
    try:
        fd = open_private(paths.lock, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return os.read(fd, len(_LAZILY) + 1) == _LAZILY
    finally:
        os.close(fd)


def filled_samples(paths: CachePaths) -> int:
    """Return how many samples the filling process has filled so far."""
    with suppress(OSError, ValueError):  # ValueError: empty
        region = SharedRegion(open_private(paths.partial, os.O_RDONLY), writable=False, on_disk=True)
        header = read_header(region)
        if header is not None:
            return int(np.count_nonzero(Store(region, header[0]).states))
    return 0


def _begun(paths: CachePaths, plan: StorePlan) -> Store:
    region = sized(make_private(paths.partial), plan.size, on_disk=True)
    region.reserve(0, plan.arena_at)
    write_header(region, plan)
    return Store(region, plan)


def _continued(paths: CachePaths, plan: StorePlan) -> Store | None:
    """Map the unfinished file if it can be trusted: same dataset, and no reboot since it was written."""
    try:
        region = SharedRegion(open_private(paths.partial, os.O_RDWR), on_disk=True)
    except (FileNotFoundError, NotOursError, ValueError):  # ValueError: empty
        return None
    header = read_header(region)
    if header is None:
        return None
    found, boot = header
    same = (found.layout, found.samples, found.held) == (plan.layout, plan.samples, plan.held)
    return Store(region, found) if same and boot == boot_id() and region.size == found.size else None


def _try_lock(path: Path) -> int | None:
    """Lock a file, and make sure that its name still refers to the locked file."""
    while True:
        fd = open_private(path, os.O_RDWR, create=True)
        try:
            if fcntl is not None:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _names(path, fd):
                return fd
        except BlockingIOError:
            os.close(fd)
            return None
        os.close(fd)


def _names(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def _unlock(paths: CachePaths, lock_fd: int, owner_pid: int) -> None:
    if os.getpid() == owner_pid:  # a forked child has the descriptor too, but not the claim
        with suppress(OSError):
            paths.lock.unlink()
    os.close(lock_fd)


def _flush_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
