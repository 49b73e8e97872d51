"""Counts the files that a fetch opens and keeps the last name, with an audit hook.

Files opened by C code are not seen.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import Any

_MOST_FOLDERS = 200
_WRITES = os.O_WRONLY | os.O_RDWR
_KERNEL = ("/proc/", "/sys/", "/dev/")
_CODE = (".py", ".pyc", ".so")
"""Our own sampler reads such files, too."""

count = 0
"""Files opened while `counting`."""
counting = False
last: str | None = None
"""The data file opened for reading last while `counting`, for whoever has set it to None before."""
folders: Counter[str] = Counter()
_installed = False


def install() -> None:
    """Install the audit hook, which stays for the life of the process."""
    global _installed
    if not _installed:
        _installed = True
        sys.addaudithook(_listen)


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    global count, last
    if not counting or event != "open" or not isinstance(arguments[0], str):
        return
    count += 1
    if (
        not arguments[2] & _WRITES
        and not arguments[0].startswith(_KERNEL)
        and not arguments[0].endswith(_CODE)
    ):
        last = arguments[0]
    try:
        folder = os.path.dirname(arguments[0])  # noqa: PTH120 - pathlib costs more than the rest of the hook
        if not folder.startswith("/"):
            folder = os.path.abspath(folder)  # noqa: PTH100 - as above
        if folder in folders or len(folders) < _MOST_FOLDERS:
            folders[folder] += 1
    except OSError:
        pass  # the current folder is gone; the user's own call will say so
