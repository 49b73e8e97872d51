"""Stores that are files in the cache folder: made once, reused by the next run.

    NAME-KEY.cache     finished; never changes
    NAME-KEY.partial   being filled; continued by the next run where the machine was not restarted since
    NAME-KEY.lock      held by whoever fills, gone when nobody does

A finished file appears by being renamed, after all of it is on the disk. Parts of these files are pickled, so
only files of this user are opened, and never through a link.
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
from unstarve.fixes.memory.region import Region, open_file, sized
from unstarve.fixes.memory.store.store import Plan, Store, boot_id, read_header, write_header

try:
    import fcntl
except ImportError:  # Windows: nobody is kept from filling the same file
    fcntl = None  # type: ignore[assignment] # where the module is missing

_LAZILY = b"lazily"


@dataclass(frozen=True)
class Place:
    """Where the cache of one dataset is kept, under a key that says which dataset it is."""

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
        """The file whose lock the one who fills holds."""
        return self.folder / f"{self.name}.lock"


def cache_folder(wish: str | Path | None) -> Path:
    """Return the folder for caches, made where it is missing: `wish`, $UNSTARVE_CACHE, or the user's own."""
    if wish is None:
        wish = os.environ.get("UNSTARVE_CACHE")
    if wish is None:
        wish = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unstarve"
    folder = Path(wish).expanduser()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # what is in it is unpickled
    return folder


def own_folder(folder: Path) -> Path:
    """Return the folder itself, or this user's folder in one that others can write to.

    Raises NotOursError where somebody else has taken it.
    """
    if others_can_write(folder):
        folder = folder / f"user-{os.geteuid()}"
        os.close(open_private_folder(folder))
    return folder


def open_finished(place: Place, samples: int) -> Store | None:
    """Return the finished store, or None where there is none that can be used."""
    with suppress(FileNotFoundError, NotOursError, ValueError):  # ValueError: empty
        region = open_file(place.finished)
        header = read_header(region)
        if header is not None:
            store = Store(region, header[0])
            if store.plan.samples == samples and store.is_complete():
                return store
    return None


class Claim:
    """The right to fill a place: nobody else has it until it is released, or its process is gone."""

    def __init__(self, place: Place, lock_fd: int) -> None:
        self._place = place
        self._owner_pid = os.getpid()
        self._release = weakref.finalize(self, _unlock, place, lock_fd, self._owner_pid)

    def is_ours(self) -> bool:
        """Whether this is the process that has it, and not a forked child."""
        return os.getpid() == self._owner_pid

    def finish(self, store: Store) -> None:
        """Give a complete store its final name. Raises OSError where that fails, and leaves nothing then."""
        region = store.region
        try:
            os.ftruncate(region.fd, store.end)
            region.flush()
            self._place.partial.rename(self._place.finished)
            _flush_folder(self._place.folder)
        except OSError:
            self.discard()
            raise
        region.path = self._place.finished
        self._release()

    def discard(self) -> None:
        """Remove what was begun."""
        with suppress(OSError):
            self._place.partial.unlink()
        self._release()


def try_begin(place: Place, plan: Plan, *, lazy: bool) -> tuple[Store, Claim] | None:
    """Start to fill, or go on with what a killed process has left; None while somebody else is filling.

    Raises OSError where the disk is full.
    """
    lock_fd = _try_lock(place.lock)
    if lock_fd is None:
        return None
    claim = Claim(place, lock_fd)
    os.truncate(lock_fd, 0)
    os.write(lock_fd, _LAZILY if lazy else b"")
    store = _continued(place, plan)
    if store is None:
        try:
            store = _begun(place, plan)
        except BaseException:  # also Ctrl-C: others wait for the claim
            claim.discard()
            raise
    return store, claim


def is_filled_lazily(place: Place) -> bool:
    """Whether the one who fills does so as samples are asked for, so that there is no end to wait for."""
    try:
        fd = open_private(place.lock, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return os.read(fd, len(_LAZILY) + 1) == _LAZILY
    finally:
        os.close(fd)


def filled_samples(place: Place) -> int:
    """Return how many samples the one who fills has filled so far."""
    with suppress(OSError, ValueError):  # ValueError: empty
        region = Region(open_private(place.partial, os.O_RDONLY), writable=False, on_disk=True)
        header = read_header(region)
        if header is not None:
            return int(np.count_nonzero(Store(region, header[0]).states))
    return 0


def _begun(place: Place, plan: Plan) -> Store:
    region = sized(make_private(place.partial), plan.size, on_disk=True)
    region.reserve(0, plan.arena_at)
    write_header(region, plan)
    return Store(region, plan)


def _continued(place: Place, plan: Plan) -> Store | None:
    """Map what is there, if every sample that says it is there must be: the machine has not stopped since."""
    try:
        region = Region(open_private(place.partial, os.O_RDWR), on_disk=True)
    except (FileNotFoundError, NotOursError, ValueError):  # ValueError: empty
        return None
    header = read_header(region)
    if header is None:
        return None
    found, boot = header
    same = (found.layout, found.samples, found.held) == (plan.layout, plan.samples, plan.held)
    return Store(region, found) if same and boot == boot_id() and region.size == found.size else None


def _try_lock(path: Path) -> int | None:
    """Lock a file, and make sure that the name still means the file that was locked."""
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


def _unlock(place: Place, lock_fd: int, owner_pid: int) -> None:
    if os.getpid() == owner_pid:  # a forked child has the descriptor too, but the place is not its own
        with suppress(OSError):
            place.lock.unlink()
    os.close(lock_fd)


def _flush_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
