"""Hide the folders of this machine: who may see a run need not see where it is stored.

A path is cut to its last part: ``/home/me/project/train.py:41`` becomes ``…/train.py:41``. Inside Python's
own folders it begins at the package. The user's code stays as it was written, since it is there to be copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from unstarve.model.nouns import each_text

_PART = r"[^/\s\"'`:;,()<>\[\]{}|=]+"
_PATH = re.compile(rf"(?:file://|(?<![\w.~/]))/(?:{_PART}/)+(?:{_PART})?")
_SAME_EVERYWHERE = re.compile(r"/(?:dev|proc|sys)/")
_PYTHON = re.compile(r"(?:site|dist)-packages/|/lib/python[\d.]+/")
_CODE = ("code", "source")

T = TypeVar("T")


def without_folders(text: str, files: Iterable[Path] = ()) -> str:
    """The text with every absolute path cut short; `files` are replaced by their names.

    >>> without_folders("cannot read /home/me/runs/a.txt: no such file")
    'cannot read …/a.txt: no such file'
    """
    for file in files:
        text = text.replace(str(file), file.name)
    return _PATH.sub(_short, text)


def private(noun: T, files: Iterable[Path] = ()) -> T:
    """A copy of a noun in which all texts hide the folders of this machine."""
    known = tuple(files)
    return each_text(noun, lambda text, field: text if field in _CODE else without_folders(text, known))


def _short(found: re.Match[str]) -> str:
    path = found[0].removeprefix("file://")
    if _SAME_EVERYWHERE.match(path):
        return path
    inside = _PYTHON.split(path)
    if len(inside) > 1 and inside[-1]:
        return inside[-1]
    return f"…/{path.rstrip('/').rpartition('/')[2]}"
