"""Which files a dataset is made of: a list, a pattern or a folder."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from unstarve.errors import UsageError
from unstarve.fixes.io.formats import format_of

Paths: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"


def files_of(paths: Paths, *, any_suffix: bool = False) -> list[str]:
    """Return absolute paths: a list's in its order, a pattern's or a folder's sorted by name.

    A folder is searched with all below it, for files whose names promise tensors, or for all with
    `any_suffix`. Raises UsageError where there are none; FileNotFoundError for a path that does not exist.
    """
    if isinstance(paths, str | os.PathLike):
        found = _files_at(os.fspath(paths), any_suffix)
        if not found:
            raise UsageError(
                f"{paths} holds no files with tensors: give a folder, a pattern or a list of files"
            )
    else:
        found = [os.fspath(path) for path in paths]
        if not found:
            raise UsageError("paths is empty: a dataset needs at least one file")
    return [os.path.abspath(path) for path in found]  # noqa: PTH100  # pathlib would take a second per million


def _files_at(place: str, any_suffix: bool) -> list[str]:
    if Path(place).is_dir():
        below = (os.path.join(at, name) for at, _, names in os.walk(place) for name in names)  # noqa: PTH118  # as above
        return sorted(path for path in below if any_suffix or format_of(path) is not None)
    if Path(place).exists():
        return [place]
    if glob.has_magic(place):
        return sorted(path for path in glob.glob(place, recursive=True) if Path(path).is_file())  # noqa: PTH207  # the pattern may be absolute
    raise FileNotFoundError(f"there is no file or folder {place}")
