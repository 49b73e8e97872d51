"""Files that only grow, and a journal that says how much of each counts.

A packed file is written as several such files in ``NAME.partial/``. What was written since the last
checkpoint is cut off when the work is taken up again, after a kill as after a full disk.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from unstarve.errors import UsageError
from unstarve.fixes.datasets.packed.journal import Journal, is_stream, parse
from unstarve.fixes.io.private_files import NotOursError, make_private, open_private, open_private_folder

_JOURNAL = "journal.json"
_FRESH_JOURNAL = "journal.json.new"
_LOCK = "lock"
_BUFFER_BYTES = 1 << 20
_COPY_BYTES = 8 << 20
_HELD: set[Path] = set()
"""Folders this process writes in: the lock on them keeps out only others."""


class Stream:
    """A file that is appended to. Small pieces are gathered in memory; `size` counts them too."""

    def __init__(self, path: Path, folder: int, size: int = 0) -> None:
        """Open the file in the folder that is open as `folder`, and cut it to `size`.

        ValueError where it is shorter, OSError where it is not a file of ours.
        """
        self.path = path
        self.size = size
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        # One of the streams becomes the packed file, which others may read: the umask decides.
        self._fd = open_private(path.name, os.O_RDWR, create=True, mode=0o666, folder=folder)
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
        other.flush()
        while piece := os.pread(other._fd, _COPY_BYTES, start):
            self.write(piece)
            start += len(piece)

    def content(self) -> bytes:
        """All that was written."""
        self.flush()
        pieces = []
        at = 0
        while piece := os.pread(self._fd, _COPY_BYTES, at):
            pieces.append(piece)
            at += len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        """Let go of the file; what waits in memory is lost."""
        os.close(self._fd)


def _write_all(fd: int, piece: Any) -> None:
    rest = memoryview(piece).cast("B")
    while rest:
        rest = rest[os.write(fd, rest) :]


class Partial:
    """The folder ``NAME.partial/`` of a packed file being written, held by one process at a time.

    Once it is known to be ours it is reached by its descriptor: others may rename it in a shared folder.
    """

    def __init__(self, destination: Path, *, resume: bool) -> None:
        """Take up what is there when `resume` is set and it fits together, else begin anew.

        Raises UsageError where another process is writing it, or the folder is not ours.
        """
        self.folder = partial_folder(destination).absolute()
        self.streams: dict[str, Stream] = {}
        self.journal: Journal | None = None
        if self.folder in _HELD:
            raise UsageError(_taken(destination))
        try:
            self._fd = open_private_folder(self.folder)
        except NotOursError as error:
            raise UsageError(_in_the_way(str(error), destination)) from error
        try:
            _check_names(self._fd, self.folder)
            self._lock = _locked(self._fd, destination)
        except BaseException:  # also Ctrl-C: the descriptor is ours
            os.close(self._fd)
            raise
        _HELD.add(self.folder)
        try:
            if resume:
                self._take_up()
            if self.journal is None:
                self._clear()
        except BaseException:  # also Ctrl-C: the folder is free again
            self.close()
            raise

    def stream(self, name: str, start: bytes = b"") -> Stream:
        """The stream of this name; a new one begins with `start`."""
        if name not in self.streams:
            self.streams[name] = Stream(self.folder / name, self._fd)
            self.streams[name].write(start)
        return self.streams[name]

    def checkpoint(self, journal: Journal) -> None:
        """Bring all streams to the storage, then write the journal with their sizes: it survives anything."""
        for stream in self.streams.values():
            stream.sync()
        journal = replace(journal, sizes={name: stream.size for name, stream in self.streams.items()})
        fd = make_private(_FRESH_JOURNAL, folder=self._fd)
        try:
            _write_all(fd, journal.to_bytes())
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(_FRESH_JOURNAL, _JOURNAL, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        with contextlib.suppress(OSError):  # where the file system can
            os.fsync(self._fd)

    def close(self) -> None:
        """Leave the folder as the last checkpoint says."""
        self._close_streams()
        self._let_go()

    def remove(self) -> None:
        """Remove the folder and what was written in it."""
        self._close_streams()
        with contextlib.suppress(OSError):  # something that is not ours has come in: it stays
            self._clear()
            _unlink(_LOCK, self._fd)
            self.folder.rmdir()
        self._let_go()

    def _take_up(self) -> None:
        try:
            self.journal = parse(_content(_JOURNAL, self._fd))
            for name, size in (self.journal.sizes if self.journal is not None else {}).items():
                self.streams[name] = Stream(self.folder / name, self._fd, size)
        except (OSError, ValueError):  # none yet, somebody took files away, or half a folder was copied
            self._close_streams()
            self.journal = None

    def _clear(self) -> None:
        for name in _names(self._fd):
            if name != _LOCK and _is_known(name):
                _unlink(name, self._fd)

    def _let_go(self) -> None:
        os.close(self._lock)
        os.close(self._fd)
        _HELD.discard(self.folder)

    def _close_streams(self) -> None:
        for stream in self.streams.values():
            stream.close()
        self.streams.clear()


def partial_folder(destination: Path) -> Path:
    """Where a packed file of this name is written."""
    return destination.with_name(f"{destination.name}.partial")


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut, where the file system can."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(fd)
    finally:
        os.close(fd)


def _names(folder: int) -> dict[str, bool]:
    """What is in a folder, and whether it is a folder itself."""
    with os.scandir(folder) as entries:
        return {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}


def _check_names(folder: int, path: Path) -> None:
    """UsageError where the folder holds anything but our own files: they may be removed."""
    names = _names(folder)
    if (names and _LOCK not in names) or any(names.values()) or not all(map(_is_known, names)):
        raise UsageError(f"{path} is needed to write in, but holds something else: move it away")


def _is_known(name: str) -> bool:
    return name in (_LOCK, _JOURNAL, _FRESH_JOURNAL) or is_stream(name)


def _locked(folder: int, destination: Path) -> int:
    """Hold the folder. A lock of this kind goes with the process and is not inherited by its workers."""
    try:
        fd = open_private(_LOCK, os.O_RDWR, create=True, folder=folder)
    except NotOursError as error:
        raise UsageError(_in_the_way(f"{partial_folder(destination)}/{error}", destination)) from error
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            os.close(fd)
            raise UsageError(_taken(destination)) from None
        # A file system without locks: nobody else can hold one either.
    return fd


def _content(name: str, folder: int) -> bytes:
    with open(open_private(name, os.O_RDONLY, folder=folder), "rb") as file:  # noqa: PTH123 # a descriptor
        return file.read()


def _unlink(name: str, folder: int) -> None:
    """Remove a name from the folder, and never what a link leads to."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _taken(destination: Path) -> str:
    return f"{destination} is being written by another process: wait for it, or end it"


def _in_the_way(what: str, destination: Path) -> str:
    return f"{destination} cannot be written: {what}; remove it, or choose another name"
