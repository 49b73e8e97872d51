"""Find where tensors lie in many .pt, .npy or .safetensors files, natively and without the GIL.

Nothing in a file is executed or trusted: every offset is checked against the file. A file that the finder
does not understand is left to the library of its format, and so is every file where the native part is
missing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unstarve.errors import DataFileError
from unstarve.fixes.io.reading import Names
from unstarve.fixes.io.regular_files import open_error
from unstarve.native import native

PT, NPY, SAFETENSORS = range(3)
_BY_SUFFIX = {".pt": PT, ".pth": PT, ".npy": NPY, ".safetensors": SAFETENSORS}

LAYOUT, UNSUPPORTED, DAMAGED, NO_FILE = range(4)

MAX_TENSOR_BYTES = 1 << 62
"""No file holds a larger tensor; an empty tensor's other dimensions are held to it as well."""


@dataclass(frozen=True)
class Answer:
    """The result for one file."""

    found: int
    """LAYOUT, UNSUPPORTED (left to its library), DAMAGED, or NO_FILE (cannot be opened)."""
    error: int
    """With NO_FILE: errno or NOT_REGULAR."""
    text: str
    """The structure, as native/formats.h describes it, or the reason why there is none; may be empty."""
    columns: list[int]
    """One per leaf of the structure: a tensor's offset in the file, or a number's bits."""
    size_bytes: int
    mtime_ns: int


_NOT_INSPECTED = Answer(UNSUPPORTED, 0, "", [], -1, -1)


def format_of(path: str) -> int | None:
    """Return the format that a file's suffix names, or None for any other suffix."""
    return _BY_SUFFIX.get(path[path.rfind(".") :].lower())  # pathlib would take seconds for a million files


def find_layouts(
    names: Names,
    starts: NDArray[np.int64],
    formats: NDArray[np.uint8],
    *,
    direct: bool = False,
    threads: int = 0,
) -> list[Answer]:
    """Inspect the files whose names start at `starts`; return one answer each, whatever fails.

    `direct` reads the headers past the page cache where the file system can. Without the native part no file
    is opened, and every answer is UNSUPPORTED.
    """
    compiled = native()
    if compiled is None:
        return [_NOT_INSPECTED] * len(starts)
    answers = compiled.find_layouts(
        names.block,
        np.ascontiguousarray(starts, np.int64),
        np.ascontiguousarray(formats, np.uint8),
        direct,
        threads,
    )
    return [Answer(*answer) for answer in answers]


def error_of(answer: Answer, path: str) -> Exception:
    """Return the exception for a file without a layout."""
    if answer.found == NO_FILE:
        return open_error(answer.error, path)
    return DataFileError(f"{path} cannot be loaded: {answer.text}; write it again or leave it out")
