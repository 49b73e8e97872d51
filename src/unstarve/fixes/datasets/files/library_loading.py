"""Load a whole file with the library of its format: torch, numpy or safetensors.

This serves files whose layout the native part does not find, and every file where the native part is missing.
Nothing in a file is executed, and no library is trusted with sizes that the file cannot hold.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
import torch

from unstarve.errors import DataFileError, MissingExtraError
from unstarve.fixes.io.formats import (
    DAMAGED,
    MAX_TENSOR_BYTES,
    NO_FILE,
    NPY,
    PT,
    SAFETENSORS,
    Answer,
    error_of,
)
from unstarve.fixes.io.regular_files import open_regular

_MIN_PARTS = 4096
_MAX_HEADER_BYTES = 16 << 20  # of .safetensors: parsing it takes about twelve times its size
_MAX_DIMENSIONS = 64  # as the native part allows
_STORAGE_ERRORS = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT)
"""These come from the device; any other OSError comes from a damaged file."""


def load_file(path: str, code: int, answer: Answer) -> Any:
    """Load a file for which the finder gave this answer, without a layout.

    Raises OSError for a file that cannot be opened or read, DataFileError that names the file where its
    library cannot load it either, and MissingExtraError where that library is not installed.
    """
    if answer.found == NO_FILE or (answer.found == DAMAGED and code == SAFETENSORS):
        raise error_of(answer, path)
    file = os.fdopen(open_regular(path), "rb")
    try:
        with file:
            return _LOADERS[code](file, os.fstat(file.fileno()).st_size)
    except MissingExtraError:
        raise
    except Exception as error:  # a damaged file may make a library raise anything
        if isinstance(error, OSError) and error.errno in _STORAGE_ERRORS:
            raise
        reason = _first_sentence(error)
        if answer.text and not isinstance(error, DataFileError):
            reason = f"{answer.text}; its own library says: {reason}"
        raise DataFileError(f"{path} cannot be loaded: {reason}; write it again or leave it out") from error


def _load_pt(file: BinaryIO, size_bytes: int) -> Any:
    loaded = torch.load(file, weights_only=True)
    # A list can hold another list many times, which holds another many times: walking it would never end.
    left = max(size_bytes, _MIN_PARTS)
    parts = [loaded]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            parts += part.values()
        elif isinstance(part, list | tuple):
            parts += part
        elif isinstance(part, torch.Tensor):
            _check_shape(part.shape, part.itemsize)
        left -= 1
        if left < 0:
            raise DataFileError("it repeats itself very often")
    return loaded


def _load_npy(file: BinaryIO, size_bytes: int) -> torch.Tensor:
    """Load an array, after its size was compared with the file's: numpy allocates what a header says."""
    version = np.lib.format.read_magic(file)
    # Version 3 differs from 2 only in how it encodes field names, and arrays with fields are no tensors.
    read_header = (
        np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read_header(file)
    _check_shape(shape, dtype.itemsize)
    if math.prod(shape) * dtype.itemsize > size_bytes - file.tell():
        raise DataFileError("it is shorter than its header says")
    file.seek(0)
    array = np.load(file, allow_pickle=False)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return torch.from_numpy(array)


def _load_safetensors(file: BinaryIO, size_bytes: int) -> dict[str, torch.Tensor]:
    try:
        from safetensors.torch import load
    except ImportError:
        raise MissingExtraError(
            "without the native part .safetensors needs safetensors: pip install 'unstarve[safetensors]'"
        ) from None
    header_bytes = int.from_bytes(file.read(8), "little")
    if header_bytes > min(_MAX_HEADER_BYTES, size_bytes - 8):
        raise DataFileError("its header is longer than the file, or than 16 MiB")
    file.seek(0)
    data = file.read()
    tensors = load(data)
    for tensor in tensors.values():
        _check_shape(tensor.shape, tensor.itemsize)
    # The library returns them in random order; samples have the order of the file.
    return {name: tensors[name] for name in json.loads(data[8 : 8 + header_bytes]) if name in tensors}


_LOADERS = {PT: _load_pt, NPY: _load_npy, SAFETENSORS: _load_safetensors}


def _check_shape(shape: Sequence[int], itemsize: int) -> None:
    if any(size < 0 for size in shape):
        raise DataFileError("a tensor has a negative size")
    if len(shape) > _MAX_DIMENSIONS:
        raise DataFileError(f"a tensor has more than {_MAX_DIMENSIONS} dimensions")
    # Without the sizes of 0: torch cannot make a batch of an empty tensor whose other sizes are too large.
    if math.prod(filter(None, shape)) * itemsize > MAX_TENSOR_BYTES:
        raise DataFileError("a tensor is larger than any file")


def _first_sentence(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].partition(". ")[0] or type(error).__name__
