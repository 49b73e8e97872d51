"""Open the files of a dataset: regular files only, without blocking.

Opening a FIFO blocks until someone writes to it, and a device may never end: both are refused with an error.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from unstarve.errors import DataFileError

NOT_REGULAR = errno.ESPIPE
"""Reported instead of errno for a file that is not regular; opening a file never fails with this number."""

# Some systems lack these.
_BINARY = getattr(os, "O_BINARY", 0)
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


def open_regular(path: str | bytes | os.PathLike[str], flags: int = 0) -> int:
    """Open a file for reading and return its descriptor, which the caller must close.

    Raises OSError like os.open, IsADirectoryError for a folder, and DataFileError for anything else that is
    not a regular file.
    """
    try:
        return open_or_errno(path, flags)
    except OSError as error:
        raise open_error(error.errno or 0, os.fsdecode(path)) from error


def open_or_errno(path: str | bytes | os.PathLike[str], flags: int = 0) -> int:
    """Open a file for reading; raises OSError, with NOT_REGULAR as errno if it is not a regular file."""
    wanted = os.O_RDONLY | _BINARY | _CLOEXEC | flags
    try:
        fd = os.open(path, wanted | _NONBLOCK)
    except BlockingIOError:  # a regular file on which another program has a lease: wait for it
        fd = os.open(path, wanted)
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else NOT_REGULAR, "not a regular file")
        if _NONBLOCK:
            os.set_blocking(fd, True)
    except BaseException:  # Ctrl-C included: the descriptor must not leak
        os.close(fd)
        raise
    return fd


def open_error(number: int, path: str) -> Exception:
    """Return the exception for a file that could not be opened: the system's, or one that names its kind."""
    if number in (NOT_REGULAR, errno.ENXIO):
        try:
            kind = _KINDS.get(stat.S_IFMT(Path(path).stat().st_mode))
        except OSError:
            kind = None
        if number == NOT_REGULAR or kind is not None:
            what = f"is {kind}, not" if kind is not None else "is not"
            return DataFileError(f"{path} {what} a regular file: leave it out of the dataset")
    return OSError(number, os.strerror(number), path)
