"""Which files `unstarve pack` packs: those of a folder, of a pattern, or named one by one.

Links are followed: datasets often consist of them. A link back to a folder that contains it never ends and is
skipped; below a link every folder is entered once. Hidden names are skipped unless a pattern names them. A
broken link, a FIFO or a socket is found too: packing fails and names it, or skips it if asked to.
"""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unstarve.errors import UsageError
from unstarve.fixes.datasets.packed.packed_partial import partial_folder

_ANY_FOLDERS = "**"


@dataclass
class Links:
    """Symbolic links among the sources, relative to the folder they were found from."""

    outside: list[str] = field(default_factory=list)
    """Links out of the source, which were followed."""
    endless: list[str] = field(default_factory=list)
    """Links back to a folder that contains them, which were skipped."""


@dataclass(frozen=True)
class SourceFiles:
    """Files below `base`, by their names relative to it, sorted."""

    base: Path
    names: list[str]
    links: Links


def find_files(words: Sequence[str], leave_out: Path) -> SourceFiles:
    """Find the files that the words name; `leave_out` is the packed file being written.

    Raises UsageError if there are none or a folder cannot be read.
    """
    own = (leave_out.absolute(), partial_folder(leave_out.absolute()))
    links = Links()
    found = [path.absolute() for word in words for path in _matching(word, links)]
    found = [path for path in found if path not in own and path.parent not in own]
    if not found:
        raise UsageError(f"no files in {' '.join(words)}")
    if len(words) == 1 and Path(words[0]).is_dir():
        base = Path(words[0]).absolute()
    else:
        base = Path(os.path.commonpath([path.parent for path in found]))
    names = {path.relative_to(base).as_posix() for path in found}
    return SourceFiles(base, sorted(names, key=lambda name: name.split("/")), links)


def _matching(word: str, links: Links) -> Iterator[Path]:
    path = Path(word)
    if path.is_dir():
        yield from _walk(path, _Pattern((_ANY_FOLDERS,)), links)
    elif os.path.lexists(path):
        yield path
    elif glob.has_magic(word):
        fixed = next(n for n, part in enumerate(path.parts) if glob.has_magic(part))
        root = Path(*path.parts[:fixed])
        if root.is_dir():
            yield from _walk(root, _Pattern(path.parts[fixed:]), links)
    else:
        remedy = (
            "; for a dataset pass MODULE:ATTRIBUTE or SCRIPT.py:ATTRIBUTE" if word.endswith(".py") else ""
        )
        raise UsageError(f"no such file or folder: {word}{remedy}")


class _Pattern:
    """A glob pattern matched name by name. A *place* is the set of pattern parts that may come next."""

    def __init__(self, parts: Sequence[str]) -> None:
        self._parts = parts
        self.start = self._closed({0})

    def after(self, place: frozenset[int], name: str) -> frozenset[int]:
        """Return the place after a name; empty if the name does not match."""
        fitting = {at for at in place if at < len(self._parts) and self._fits(self._parts[at], name)}
        return self._closed({at if self._parts[at] == _ANY_FOLDERS else at + 1 for at in fitting})

    def may_end(self, place: frozenset[int]) -> bool:
        """Whether a file matches here."""
        return len(self._parts) in place

    def may_go_on(self, place: frozenset[int]) -> bool:
        """Whether a folder here may contain matches."""
        return any(at < len(self._parts) for at in place)

    def _fits(self, part: str, name: str) -> bool:
        if name.startswith(".") and not part.startswith("."):
            return False
        return part == _ANY_FOLDERS or fnmatch.fnmatchcase(name, part)

    def _closed(self, place: set[int]) -> frozenset[int]:
        """Add the places reached when ``**`` matches no folder."""
        for at in range(len(self._parts)):
            if at in place and self._parts[at] == _ANY_FOLDERS:
                place.add(at + 1)
        return frozenset(place)


@dataclass(frozen=True)
class _Folder:
    """A folder to walk; folders in `entered` must not be entered again below it."""

    path: str
    place: frozenset[int]
    entered: set[tuple[int, int]]
    below_link: bool


def _walk(root: Path, pattern: _Pattern, links: Links) -> Iterator[Path]:
    real_root = Path(os.path.realpath(root))
    above = {_identity(folder.stat()) for folder in (real_root, *real_root.parents)}
    todo = [_Folder(str(root), pattern.start, above, below_link=False)]
    while todo:
        folder = todo.pop()
        for entry in _entries(folder.path):
            place = pattern.after(folder.place, entry.name)
            if not place:
                continue
            is_folder = _is_folder(entry)
            if not (pattern.may_go_on(place) if is_folder else pattern.may_end(place)):
                continue
            if is_folder:
                below = _below(folder, entry, place)
                if below is None:
                    links.endless.append(str(Path(entry.path)))
                    continue
                todo.append(below)
            else:
                yield Path(entry.path)
            if entry.is_symlink() and not Path(os.path.realpath(entry.path)).is_relative_to(real_root):
                links.outside.append(str(Path(entry.path)))


def _below(folder: _Folder, entry: os.DirEntry[str], place: frozenset[int]) -> _Folder | None:
    """Return the folder to walk; None if it was entered already on the way to it."""
    identity = _identity(entry.stat())
    if identity in folder.entered:
        return None
    # Below a link all share one set: links that cross cannot multiply the folders without bound.
    entered = folder.entered if folder.below_link else set(folder.entered)
    entered.add(identity)
    return _Folder(entry.path, place, entered, folder.below_link or entry.is_symlink())


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be read ({error.strerror}): make it readable, or exclude it with a pattern"
        ) from error


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself: neither a folder nor a file
        return False


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
