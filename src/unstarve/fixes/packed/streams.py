"""Files that only grow, and a journal that says how much of each counts.

A packed file is written as several such files in ``NAME.partial/``. What was written since the last
checkpoint is cut off when the work is taken up again, after a kill as after a full disk.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

from unstarve.errors import UsageError

_JOURNAL = "journal.json"
_LOCK = "lock"
_BUFFER_BYTES = 1 << 20
_HELD: set[Path] = set()
"""Folders this process writes in: the lock on them keeps out only others."""


class Stream:
    """A file that is appended to. Small pieces are gathered in memory; `size` counts them too."""

    def __init__(self, path: Path, size: int = 0) -> None:
        """Open the file and cut it to `size`; ValueError where it is shorter."""
        self.path = path
        self.size = size
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if os.fstat(self._fd).st_size < size:
            os.close(self._fd)
            raise ValueError(f"{path} is shorter than its journal says")
        os.ftruncate(self._fd, size)
        os.lseek(self._fd, size, os.SEEK_SET)

    def write(self, piece: Any) -> None:
        """Append bytes."""
        if len(piece) >= _BUFFER_BYTES:
            self.flush()
            _write_all(self._fd, piece)
        else:
            self._waiting.append(bytes(piece))
            self._waiting_bytes += len(piece)
            if self._waiting_bytes >= _BUFFER_BYTES:
                self.flush()
        self.size += len(piece)

    def pad(self, alignment: int) -> None:
        """Append zeros up to a multiple of the alignment."""
        self.write(bytes(-self.size % alignment))

    def flush(self) -> None:
        """Hand everything to the operating system."""
        if self._waiting:
            _write_all(self._fd, b"".join(self._waiting))
            self._waiting.clear()
            self._waiting_bytes = 0

    def sync(self) -> None:
        """Bring everything to the storage."""
        self.flush()
        os.fsync(self._fd)

    def append_file(self, other: Stream, start: int) -> None:
        """Append what another stream's file holds from `start` on."""
        self.flush()
        with other.path.open("rb", buffering=0) as source:
            source.seek(start)
            while piece := source.read(8 << 20):
                self.write(piece)

    def close(self) -> None:
        """Let go of the file; what waits in memory is lost."""
        os.close(self._fd)


def _write_all(fd: int, piece: Any) -> None:
    rest = memoryview(piece).cast("B")
    while rest:
        rest = rest[os.write(fd, rest) :]


class Partial:
    """The folder ``NAME.partial/`` of a packed file being written, held by one process at a time."""

    def __init__(self, destination: Path, *, resume: bool) -> None:
        """Take up what is there when `resume` is set and it fits together, else begin anew.

        Raises UsageError where another process is writing it.
        """
        self.folder = partial_folder(destination).absolute()
        self.streams: dict[str, Stream] = {}
        _make_folder(self.folder)
        self._lock = _locked(self.folder / _LOCK, destination)
        self.state: dict[str, Any] | None = read_journal(self.folder) if resume else None
        if self.state is not None:
            try:
                for name, size in self.state["sizes"].items():
                    self.streams[name] = Stream(self.folder / name, size)
            except (OSError, ValueError):  # somebody took files away, or half a folder was copied
                self._close_streams()
                self.state = None
        if self.state is None:
            for path in self.folder.iterdir():
                if path.name != _LOCK:
                    path.unlink()

    def stream(self, name: str, start: bytes = b"") -> Stream:
        """The stream of this name; a new one begins with `start`."""
        if name not in self.streams:
            self.streams[name] = Stream(self.folder / name)
            self.streams[name].write(start)
        return self.streams[name]

    def checkpoint(self, state: dict[str, Any]) -> None:
        """Bring all streams to the storage, then note their sizes and `state`: that survives anything."""
        for stream in self.streams.values():
            stream.sync()
        sizes = {name: stream.size for name, stream in self.streams.items()}
        fresh = self.folder / f"{_JOURNAL}.new"
        with fresh.open("w") as file:
            json.dump({**state, "sizes": sizes}, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.folder / _JOURNAL)
        sync_folder(self.folder)

    def close(self) -> None:
        """Leave the folder as the last checkpoint says."""
        self._close_streams()
        self._let_go()

    def remove(self) -> None:
        """Remove the folder and everything in it."""
        self._close_streams()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._let_go()

    def _let_go(self) -> None:
        os.close(self._lock)
        _HELD.discard(self.folder)

    def _close_streams(self) -> None:
        for stream in self.streams.values():
            stream.close()
        self.streams.clear()


def partial_folder(destination: Path) -> Path:
    """Where a packed file of this name is written."""
    return destination.with_name(f"{destination.name}.partial")


def read_journal(folder: Path) -> dict[str, Any] | None:
    """What the last checkpoint noted; None where there is none."""
    try:
        state: dict[str, Any] = json.loads((folder / _JOURNAL).read_text())
        return state if isinstance(state["sizes"], dict) else None
    except (OSError, ValueError, KeyError, TypeError):  # none yet, or not ours
        return None


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut, where the file system can."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(fd)
    finally:
        os.close(fd)


def _make_folder(folder: Path) -> None:
    """Make the folder, or see that the one there is ours: what is in it may be removed."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / _LOCK).exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is needed to write in, but holds something else: move it away")


def _locked(path: Path, destination: Path) -> int:
    """Hold the folder. A lock of this kind goes with the process and is not inherited by its workers."""
    taken = f"{destination} is being written by another process: wait for it, or end it"
    if path.parent in _HELD:
        raise UsageError(taken)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            os.close(fd)
            raise UsageError(taken) from None
        # A file system without locks: nobody else can hold one either.
    _HELD.add(path.parent)
    return fd
