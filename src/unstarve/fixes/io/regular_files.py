"""Files of a dataset are opened here: regular ones alone, without waiting for anybody.

Opening a FIFO waits until somebody writes to it, and a device may never end: a name that means one of these
is an error that says so.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from unstarve.errors import DataFileError

NOT_REGULAR = errno.ESPIPE
"""What the compiled reader and its twin report in the place of errno; opening a file never fails with it."""

# Other systems may lack these.
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
    """Open a file for reading and return its descriptor, which belongs to the caller.

    Raises DataFileError for what is no regular file, IsADirectoryError for a folder, OSError as os.open does.
    """
    try:
        return open_or_errno(path, flags)
    except OSError as error:
        raise open_error(error.errno or 0, os.fsdecode(path)) from error


def open_or_errno(path: str | bytes | os.PathLike[str], flags: int = 0) -> int:
    """Open a file for reading; OSError with NOT_REGULAR where it is no regular file."""
    wanted = os.O_RDONLY | _BINARY | _CLOEXEC | flags
    try:
        fd = os.open(path, wanted | _NONBLOCK)
    except BlockingIOError:  # a regular file, which another program has a lease on and is asked to give up
        fd = os.open(path, wanted)
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else NOT_REGULAR, "not a regular file")
        if _NONBLOCK:
            os.set_blocking(fd, True)
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_error(number: int, path: str) -> Exception:
    """Return the exception for a file that could not be opened: the system's own, or one that says why."""
    if number in (NOT_REGULAR, errno.ENXIO):
        try:
            kind = _KINDS.get(stat.S_IFMT(Path(path).stat().st_mode))
        except OSError:
            kind = None
        if number == NOT_REGULAR or kind is not None:
            what = f"is {kind}, not" if kind is not None else "is not"
            return DataFileError(f"{path} {what} a regular file: give a file of a dataset, or leave it out")
    return OSError(number, os.strerror(number), path)
