"""Where the bytes of the tensors lie in many .pt, .npy or .safetensors files, found without the GIL.

Nothing in a file is executed or believed: every offset is checked against the file. What the finder does not
understand it says, and whoever asked loads that file with the library that wrote it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unstarve.errors import DataFileError
from unstarve.fixes.io.reading import Names
from unstarve.fixes.io.regular_files import open_error
from unstarve.fixes.io.twins import formats as twin
from unstarve.native import native

PT, NPY, SAFETENSORS = range(3)
_BY_SUFFIX = {".pt": PT, ".pth": PT, ".npy": NPY, ".safetensors": SAFETENSORS}

LAYOUT, UNSUPPORTED, DAMAGED, NO_FILE = range(4)


@dataclass(frozen=True)
class Answer:
    """What was found in one file."""

    found: int
    """LAYOUT, or UNSUPPORTED: for another library; DAMAGED: for none; NO_FILE: cannot be opened."""
    error: int
    """errno or NOT_REGULAR, with NO_FILE."""
    text: str
    """The structure, as native/formats.h describes it, or the reason why there is none."""
    columns: list[int]
    """For each leaf of the structure a tensor's offset in the file, or a number's bits."""
    size_bytes: int
    mtime_ns: int


def format_of(path: str) -> int | None:
    """Return the format that a file's name promises; None for a name that promises nothing."""
    return _BY_SUFFIX.get(path[path.rfind(".") :].lower())  # pathlib would take seconds for a million files


def find_layouts(
    names: Names,
    starts: NDArray[np.int64],
    formats: NDArray[np.uint8],
    *,
    direct: bool = False,
    threads: int = 0,
) -> list[Answer]:
    """Look into the files whose names start at `starts`; one answer each, whatever fails.

    `direct` reads the headers past the page cache, where the file system can.
    """
    finder = native() or twin
    answers = finder.find_layouts(
        names.block,
        np.ascontiguousarray(starts, np.int64),
        np.ascontiguousarray(formats, np.uint8),
        direct,
        threads,
    )
    return [Answer(*answer) for answer in answers]


def error_of(answer: Answer, path: str) -> Exception:
    """Return the exception for a file in which nothing was found."""
    if answer.found == NO_FILE:
        return open_error(answer.error, path)
    return DataFileError(f"{path} cannot be loaded: {answer.text}; write it anew or leave it out")
