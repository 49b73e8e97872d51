"""Write the files that a user names: each completely or not at all, and never replacing a device.

A regular file is written next to the old one and then renamed, so a failure or Ctrl-C leaves the old one;
its mode, owner and links stay. A character device, a pipe or ``/dev/stdout`` is opened and written.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from unstarve.errors import OutputError

_MOST_LINKS = 40
_COPY_BYTES = 8 << 20


def write_output(path: Path, content: str | bytes, *, sync: bool = True) -> None:
    """Write `content`, text as UTF-8. Raises `OutputError` and leaves the old file.

    Without `sync` it does not wait for the storage: for a file that is written repeatedly.
    """
    data = content.encode() if isinstance(content, str) else content
    with _errors_about(path):
        _write(_target(path), [data], sync=sync)


def put_in_place(finished: Path, path: Path) -> None:
    """Rename a `finished` file, which is already on the storage, to `path`.

    Raises `OutputError` and leaves both files as they were.
    """
    with _errors_about(path):
        target = _target(path)
        try:
            if not target.is_special:
                _keep_mode(finished, target)
                finished.replace(target.path)
                _sync_folder(target.path.parent)
                return
        except OSError as error:
            if error.errno != errno.EXDEV:  # a link may point to another file system
                raise
        with finished.open("rb") as source:
            _write(target, iter(lambda: source.read(_COPY_BYTES), b""), sync=True)
        finished.unlink()


def check_output(path: Path | None) -> None:
    """Raise `OutputError` if it is already clear that `path` cannot be written; None means no output."""
    if path is not None:
        with _errors_about(path):
            _target(path)


def real_file(path: Path) -> Path:
    """The file that a link points to, whether or not it exists; any other path unchanged."""
    return _followed(path) if path.is_symlink() else path


@dataclass(frozen=True, slots=True)
class _Target:
    """The file behind a path, with links followed."""

    path: Path
    before: os.stat_result | None
    """Of the file that exists now; None if there is none."""
    is_special: bool
    """A device or pipe: it is opened and written, never replaced."""


def _target(path: Path) -> _Target:
    if path == Path("-"):
        raise OutputError("cannot write -: name a file; /dev/stdout is standard output")
    real = _followed(path)
    before = _stat(real)
    if before is not None and stat.S_ISDIR(before.st_mode):
        raise OutputError(f"cannot write {path}: it is a folder; name a file")
    if before is not None and stat.S_ISBLK(before.st_mode):
        raise OutputError(f"cannot write {path}: it is a disk; name a file")
    special = before is not None and (not stat.S_ISREG(before.st_mode) or _is_descriptor(real))
    if not special and not real.parent.is_dir():
        raise OutputError(f"cannot write {path}: there is no folder {real.parent}")
    if before is not None and not _is_own_descriptor(real) and not os.access(real, os.W_OK):
        raise OutputError(f"cannot write {path}: you have no write permission")
    if not special and not os.access(real.parent, os.W_OK):
        raise OutputError(f"cannot write {path}: you have no write permission for the folder {real.parent}")
    return _Target(real, before, special)


def _followed(path: Path) -> Path:
    """Resolve links one by one, but not those of ``/proc/PID/fd``, which are open files."""
    for _ in range(_MOST_LINKS):
        path = path.parent.resolve() / path.name if path.name not in ("", "..") else path.resolve()
        if _is_descriptor(path) or not path.is_symlink():
            return path
        path = path.parent / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _is_descriptor(path: Path) -> bool:
    return path.parts[:2] == ("/", "proc") and path.parent.name == "fd"


def _is_own_descriptor(path: Path) -> bool:
    return _is_descriptor(path) and path.parts[2] == str(os.getpid()) and path.name.isdigit()


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _opened(path: Path) -> int:
    """A descriptor for an existing device or pipe.

    Our own descriptors are duplicated: opened again, they would begin at the start of the file.
    """
    if _is_own_descriptor(path):
        sys.stdout.flush()
        return os.dup(int(path.name))
    return os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)


def _write(target: _Target, pieces: Iterable[bytes], *, sync: bool) -> None:
    if target.is_special:
        with os.fdopen(_opened(target.path), "wb") as file:
            file.writelines(pieces)
        return
    new = target.path.with_name(f".unstarve-{secrets.token_hex(8)}.tmp")
    # If the old file is private, the new one must be so from its first moment.
    mode = 0o666 if target.before is None else 0o600
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            file.writelines(pieces)
            file.flush()
            _keep_mode(new, target)
            if sync:
                os.fsync(file.fileno())
        new.replace(target.path)
    except BaseException:  # also Ctrl-C
        with contextlib.suppress(OSError):
            new.unlink()
        raise
    if sync:
        _sync_folder(target.path.parent)


def _keep_mode(new: Path, target: _Target) -> None:
    """Copy the owner, if permitted, and the mode of the file that is about to be replaced."""
    if target.before is None:
        return
    for owner, group in ((-1, target.before.st_gid), (target.before.st_uid, -1)):
        with contextlib.suppress(OSError):
            os.chown(new, owner, group)
    with contextlib.suppress(OSError):  # a file system without modes
        new.chmod(stat.S_IMODE(target.before.st_mode))


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power failure, if the file system can."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@contextmanager
def _errors_about(path: Path) -> Iterator[None]:
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
