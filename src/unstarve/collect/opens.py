"""Which files a fetch opens: an audit hook that only counts. Opens made by C code are not seen."""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import Any

_MOST_FOLDERS = 200

count = 0
"""Files opened while `counting`."""
counting = False
folders: Counter[str] = Counter()
_installed = False


def install() -> None:
    """Start listening; an audit hook stays for the life of the process."""
    global _installed
    if not _installed:
        _installed = True
        sys.addaudithook(_listen)


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    global count
    if counting and event == "open" and isinstance(arguments[0], str):
        count += 1
        folder = os.path.dirname(arguments[0])  # noqa: PTH120 - pathlib costs more than the rest of the hook
        if folder in folders or len(folders) < _MOST_FOLDERS:
            folders[os.path.abspath(folder) if not folder.startswith("/") else folder] += 1  # noqa: PTH100 - as above
