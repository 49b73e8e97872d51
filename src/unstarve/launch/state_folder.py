"""The folder of the pages: in memory, so that no disk and no file server can hold up who writes to it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SHARED_MEMORY = Path("/dev/shm")


@contextmanager
def state_folder(memory: Path = _SHARED_MEMORY) -> Iterator[Path]:
    """A new folder that only this user may read; removed at the end.

    Folders that earlier launchers could not remove, because they were killed, are removed, too.
    """
    beginning = f"unstarve-{_namespace()}-"
    in_memory = os.access(memory, os.W_OK)
    if in_memory:
        _remove_left(memory, beginning)
    prefix = f"{beginning}{os.getpid()}-"
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=memory if in_memory else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_left(memory: Path, beginning: str) -> None:
    for folder in memory.glob(f"{beginning}*"):
        pid = folder.name.removeprefix(beginning).partition("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)  # another user's stays


def _namespace() -> int:
    """Tells process numbers of this machine or container from those of another that shares /dev/shm."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0
