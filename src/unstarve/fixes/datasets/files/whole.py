"""Files whose layout the finder leaves alone, loaded by the libraries that wrote them."""

from __future__ import annotations

import errno
import os
from typing import Any, BinaryIO

import numpy as np
import torch

from unstarve.errors import DataFileError
from unstarve.fixes.io.formats import NO_FILE, NPY, PT, Answer, error_of
from unstarve.fixes.io.regular_files import open_regular

_LEAST_PARTS = 4096
_OF_THE_STORAGE = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT)
"""What the system says of a device; any other OSError comes of a damaged file that points nowhere."""


def load_whole(path: str, code: int, answer: Answer) -> Any:
    """Load a file in which no layout was found.

    Executes nothing: torch.load with weights_only, numpy without pickles. Raises OSError for a file that
    cannot be opened or read, DataFileError with both reasons where its own library cannot load it either.
    """
    if answer.found == NO_FILE or code not in (PT, NPY):
        raise error_of(answer, path)
    file = os.fdopen(open_regular(path), "rb")
    try:
        with file:
            return _load_pt(file, path, answer) if code == PT else _load_array(file)
    except DataFileError:
        raise
    except Exception as error:  # a damaged file may make torch or numpy raise anything
        if isinstance(error, OSError) and error.errno in _OF_THE_STORAGE:
            raise
        says = str(error).strip().partition("\n")[0].partition(". ")[0]
        raise DataFileError(
            f"{path} cannot be loaded: {answer.text}; its own library says: {says}"
        ) from error


def _load_pt(file: BinaryIO, path: str, answer: Answer) -> Any:
    loaded = torch.load(file, weights_only=True)
    # A list can hold another many times over, and that another: whoever walks them all never comes to an end.
    left = max(answer.size_bytes, _LEAST_PARTS)
    parts = [loaded]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            parts += part.values()
        elif isinstance(part, list | tuple):
            parts += part
        left -= 1
        if left < 0:
            raise DataFileError(f"{path} cannot be loaded: it repeats itself very often; leave it out")
    return loaded


def _load_array(file: BinaryIO) -> torch.Tensor:
    array = np.load(file, allow_pickle=False)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return torch.from_numpy(array)
