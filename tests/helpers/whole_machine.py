"""A test that measures the machine has it to itself: the other test processes of the session pause meanwhile.

Every test holds a lock, together with other tests; one that is marked ``whole_machine`` holds it alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def turn(*, alone: bool) -> Iterator[None]:
    """Run together with the tests of other processes, or alone."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield  # there are no others
        return
    entrance_file, lock_file = _files(session=os.getppid())
    with entrance_file.open("w") as entrance, lock_file.open("w") as lock:
        # Whoever waits to be alone keeps the entrance, so that no further test begins.
        fcntl.flock(entrance, fcntl.LOCK_EX)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        finally:
            fcntl.flock(entrance, fcntl.LOCK_UN)
        try:
            yield
        finally:
            # Closing is not enough: a process that the test forked may live on and have the file open.
            fcntl.flock(lock, fcntl.LOCK_UN)


def clean_up() -> None:
    """Remove the files of the session that this process leads, if it leads one."""
    for file in _files(session=os.getpid()):
        file.unlink(missing_ok=True)


def _files(session: int) -> tuple[Path, Path]:
    folder = Path(tempfile.gettempdir())
    return folder / f"unstarve-tests-{session}.entrance", folder / f"unstarve-tests-{session}.lock"
