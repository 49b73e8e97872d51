"""Open files and folders that belong to this user, under names that someone else may have taken first.

In a folder that others can write to (/tmp, a group's data), a predictable name may already be a link to an
important file, a FIFO, or someone else's file. Only regular files and folders of our own are opened; anything
else is refused. A file that we have just created counts as ours whatever its owner: some network file systems
assign it to another user.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

_SAFELY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_WRITING = os.O_WRONLY | os.O_RDWR
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_NO_FILE = (errno.EISDIR, errno.ENXIO, errno.ENODEV)


class NotOursError(OSError):
    """The name belongs to something that must not be touched; the message says to what."""


def open_private(
    name: str | Path, flags: int, *, create: bool = False, mode: int = 0o600, folder: int | None = None
) -> int:
    """Open a regular file of our own, or create it if `create` is set; the caller owns the descriptor.

    `name` is relative to `folder`, the descriptor of an open folder, if given. Raises NotOursError for a
    link, for anything but a regular file, for another user's file and, when writing, for a file with a second
    name; OSError for other failures.
    """
    while True:
        if create:
            with suppress(FileExistsError):
                return os.open(name, flags | _SAFELY | os.O_CREAT | os.O_EXCL, mode, dir_fd=folder)
        try:
            fd = os.open(name, flags | _SAFELY, dir_fd=folder)
        except FileNotFoundError:
            if not create:
                raise
            continue  # it was deleted after it had been in the way
        except OSError as error:
            raise _refusal(name, error) from error
        try:
            _check_file(name, os.fstat(fd), writing=bool(flags & _WRITING))
        except NotOursError:
            os.close(fd)
            raise
        return fd


def make_private(name: str | Path, *, folder: int | None = None) -> int:
    """Create an empty file of our own to read and write, replacing a file or link of that name.

    The caller owns the descriptor. The target of a link is left alone. Raises OSError if the name belongs to
    a folder.
    """
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    return os.open(name, os.O_RDWR | _SAFELY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)


def open_private_folder(folder: Path) -> int:
    """Open a folder of our own, creating it if it is missing; from now on only this user can write to it.

    The caller owns the descriptor. Raises NotOursError for a link, a file or another user's folder; OSError
    for other failures.
    """
    made = False
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        made = True
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _SAFELY)
    except OSError as error:
        raise _refusal(folder, error) from error
    found = os.fstat(fd)
    if not made and not _is_ours(found):
        os.close(fd)
        raise NotOursError(f"{folder} belongs to another user")
    if not made and found.st_mode & _OTHERS_WRITE:
        os.fchmod(fd, 0o700)
    return fd


def others_can_write(folder: Path) -> bool:
    """Return whether another user can create files in a folder."""
    found = folder.stat()
    return hasattr(os, "geteuid") and (not _is_ours(found) or bool(found.st_mode & _OTHERS_WRITE))


def _check_file(name: str | Path, found: os.stat_result, *, writing: bool) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise NotOursError(f"{name} is not a regular file")
    if not _is_ours(found):
        raise NotOursError(f"{name} belongs to another user")
    if writing and found.st_nlink > 1:  # the other name may belong to an important file
        raise NotOursError(f"{name} is a hard link to another file")


def _is_ours(found: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or found.st_uid == os.geteuid()


def _refusal(name: str | Path, error: OSError) -> OSError:
    """Return the exception for a name that could not be opened."""
    if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and Path(name).is_symlink()):
        return NotOursError(f"{name} is a symbolic link")
    if error.errno == errno.ENOTDIR:
        return NotOursError(f"{name} is not a folder")
    if error.errno in _NO_FILE:
        return NotOursError(f"{name} is not a regular file")
    return error
