"""Which files a command has written: those below a folder that have changed since it was started.

They are found by their modification times after the command has ended, because ``torch.save`` and safetensors
open files in native code, where no Python hook sees it. Changes by other programs count, too.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_MOST_ENTRIES = 200_000
_LONGEST_S = 2.0
_MOST_NAMES = 1000
_CACHES = {"__pycache__", "node_modules", "site-packages", "dist-packages"}
_OURS = (".unstarve", ".unstarve.parts", ".unstarve.folding")
_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """Files that have changed."""

    names: tuple[str, ...]
    """Relative to the searched folder; the largest first, because weights are large; at most 1000."""
    count: int
    """Of all files found."""
    complete: bool
    """The whole folder was searched; False where it has too many files for that."""


def files_written_since(
    folder: Path,
    since_ns: int,
    *,
    but_not: Path | None = None,
    most_entries: int = _MOST_ENTRIES,
    clock: Callable[[], float] = time.monotonic,
) -> WrittenFiles:
    """Search a folder, breadth first, for files changed since `since_ns` (Unix time).

    Linked folders are searched, too. Hidden files and folders, Python environments and caches, run files and
    the file `but_not` are left out. Never raises.
    """
    search = _Search(since_ns, most_entries, clock() + _LONGEST_S, clock)
    level = [_SearchedFolder(0, "", str(folder))]
    while level:
        below = [found for one in level for found in search.look_into(one)]
        level = sorted(below)  # the most recently changed first: not all may be searched
    if but_not is not None:
        with contextlib.suppress(OSError):
            search.found.pop(_key(but_not.stat()), None)
    largest = sorted(search.found.values(), key=lambda file: (-file.size, file.name))
    names = tuple(file.name for file in largest[:_MOST_NAMES])
    return WrittenFiles(names, len(largest), not search.is_over)


def _key(about: os.stat_result) -> tuple[int, int]:
    return about.st_dev, about.st_ino


def _devices(*folders: str) -> Iterator[int]:
    for folder in folders:
        with contextlib.suppress(OSError):
            yield Path(folder).stat().st_dev


class _SearchedFolder(NamedTuple):
    minus_changed_ns: int
    prefix: str
    """In front of the names of its files."""
    path: str


class _File(NamedTuple):
    size: int
    name: str


@dataclass(slots=True)
class _Search:
    since_ns: int
    entries_left: int
    until_s: float
    clock: Callable[[], float]
    found: dict[tuple[int, int], _File] = field(default_factory=dict)
    """By device and inode: a file may have several names."""
    seen: set[tuple[int, int]] = field(default_factory=set)
    """Folders: links may form a circle."""
    not_stored: frozenset[int] = field(default_factory=lambda: frozenset(_devices("/proc", "/sys")))
    is_over: bool = False
    """The search took too long, or there were too many files."""

    def look_into(self, folder: _SearchedFolder) -> Iterator[_SearchedFolder]:
        """Note which files of a folder have changed; yields the folders below it."""
        try:
            is_environment = any(Path(folder.path, mark).exists() for mark in _ENVIRONMENT)
            if self.is_over or (folder.prefix and is_environment):
                return
            with os.scandir(folder.path) as entries:
                for entry in entries:
                    if self._is_enough():
                        return
                    if not (
                        entry.name.startswith(".") or entry.name in _CACHES or entry.name.endswith(_OURS)
                    ):
                        yield from self._look_at(entry, f"{folder.prefix}{entry.name}")
        except OSError:  # the folder is gone, or not readable
            return

    def _look_at(self, entry: os.DirEntry[str], name: str) -> Iterator[_SearchedFolder]:
        try:
            about = entry.stat()
        except OSError:  # gone meanwhile, or a broken link
            return
        key = _key(about)
        if about.st_dev in self.not_stored:
            return
        if stat.S_ISDIR(about.st_mode) and key not in self.seen:
            self.seen.add(key)
            yield _SearchedFolder(-about.st_mtime_ns, f"{name}/", entry.path)
        elif stat.S_ISREG(about.st_mode) and about.st_ctime_ns >= self.since_ns:
            file = _File(about.st_size, name)
            # The file's own name is preferred to that of a link.
            self.found[key] = self.found.get(key, file) if entry.is_symlink() else file

    def _is_enough(self) -> bool:
        self.entries_left -= 1
        self.is_over = self.entries_left < 0 or self.clock() > self.until_s
        return self.is_over
