"""The runs of one folder, by ids that are safe in a URL. No path is ever built from what a request says."""

from __future__ import annotations

import os
import shutil
import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from unstarve.errors import NoSuchRunError, RunExistsError, RunFileError, UsageError
from unstarve.record.format import SUFFIX
from unstarve.record.run_file import is_live, parts_folder

_PLAIN = frozenset((string.ascii_letters + string.digits + "._-").encode())
_MOST_NAME_BYTES = 200
"""File systems allow 255; a number or ``.parts`` may be appended."""
_MOST_NUMBER = 1000

Stamp = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RunEntry:
    """One run file of the folder."""

    id: str
    name: str
    """For people: invalid Unicode in the file name is replaced."""
    path: Path
    stamp: Stamp
    """Changes with the run: modification times in ns and sizes in bytes."""
    size: int
    """Bytes of the run file, without its parts."""
    has_parts: bool
    """The run is being recorded, or its launcher was killed."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The run files directly in a folder."""

    path: Path

    def entries(self) -> list[RunEntry]:
        """All runs, the newest first. Raises `RunFileError` when the folder cannot be read."""
        try:
            with os.scandir(self.path) as found:
                names = [item.name for item in found if _is_run_name(item.name) and item.is_file()]
        except OSError as error:
            raise RunFileError(f"cannot read the folder of runs: {error.strerror or error}") from error
        entries = [entry for name in names if (entry := _entry(self.path / name)) is not None]
        return sorted(entries, key=lambda entry: (entry.stamp, entry.id), reverse=True)

    def find(self, run_id: str) -> RunEntry:
        """The run with this id. Raises `NoSuchRunError`."""
        for entry in self.entries():
            if entry.id == run_id:
                return entry
        raise NoSuchRunError("no such run in this folder; it may have been deleted or renamed")

    def delete(self, run_id: str) -> None:
        """Remove a run and its parts. Raises `RunFileError` if that fails or the run is being recorded."""
        entry = self.find(run_id)
        if entry.has_parts and is_live(entry.path):
            raise RunExistsError(f"{entry.name} is being recorded right now; end its training first")
        try:
            entry.path.unlink()
            if entry.has_parts:
                shutil.rmtree(parts_folder(entry.path))
        except OSError as error:
            raise RunFileError(f"cannot delete {entry.name}: {error.strerror or error}") from error

    def place(self, file: Path, name: str) -> RunEntry:
        """Rename a file of this folder to `name` or the next free ``NAME-2``: nothing is ever replaced."""
        for candidate in _numbered(name):
            path = self.path / candidate
            if parts_folder(path).exists():  # its events would be read as this run's
                continue
            try:
                path.open("xb").close()  # reserves the name on every file system
            except FileExistsError:
                continue
            file.replace(path)
            entry = _entry(path)
            if entry is not None:
                return entry
        raise RunExistsError(f"{name} already exists, and so do {_MOST_NUMBER} numbered ones")


def open_folder(path: Path) -> RunFolder:
    """The folder to serve. Raises `UsageError` when it cannot be read."""
    if not path.is_dir():
        raise UsageError(f"{path} is not a folder; give the folder with your .unstarve files")
    folder = RunFolder(path.resolve())
    try:
        folder.entries()
    except RunFileError as error:
        raise UsageError(f"{path}: {error}") from error
    return folder


def run_id(name: str) -> str:
    """A file name in characters that need no quoting in a URL: other bytes become ``~`` and their hex value.

    >>> run_id("train 1.unstarve")
    'train~201.unstarve'
    """
    return "".join(chr(byte) if byte in _PLAIN else f"~{byte:02x}" for byte in os.fsencode(name))


def upload_name(name: str) -> str:
    """The name, if an uploaded file may have it; otherwise raises `UsageError`."""
    if not name.endswith(SUFFIX):
        raise UsageError(f"the name of a run file must end in {SUFFIX}")
    if not _is_run_name(name) or "/" in name or "\\" in name or not name.isprintable():
        raise UsageError(
            "the name of a run file must not contain slashes or control characters, nor begin with a dot"
        )
    if len(name.encode("utf-8", "replace")) > _MOST_NAME_BYTES:
        raise UsageError(f"the name of a run file must have at most {_MOST_NAME_BYTES} bytes")
    return name


def _is_run_name(name: str) -> bool:
    return name.endswith(SUFFIX) and not name.startswith(".")


def _entry(path: Path) -> RunEntry | None:
    """None if it has just been removed."""
    try:
        own = path.stat()
        parts = parts_folder(path)
        inside = [part.stat() for part in parts.iterdir()] if parts.is_dir() else None
    except OSError:
        return None
    files = [own, *(inside or ())]
    stamp = (max(f.st_mtime_ns for f in files), sum(f.st_size for f in files), len(files), own.st_ino)
    name = os.fsencode(path.name).decode("utf-8", "replace")
    return RunEntry(run_id(path.name), name, path, stamp, own.st_size, has_parts=inside is not None)


def _numbered(name: str) -> Iterator[str]:
    yield name
    stem = name.removesuffix(SUFFIX)
    for number in range(2, _MOST_NUMBER + 2):
        yield f"{stem}-{number}{SUFFIX}"
