"""What the targets of tensor files share: reading one in every way, natively and with its library."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import unstarve
from same_batches import same
from unstarve.errors import UnstarveError
from unstarve.fixes.datasets.files.library_loading import load_file
from unstarve.fixes.io.formats import LAYOUT, UNSUPPORTED, Answer, find_layouts, format_of
from unstarve.fixes.io.reading import Names


def read(file: Path, data: bytes) -> None:
    """Read a file as a sample, with its library, and as a batch where that is not the library's work.

    AssertionError where the native part and the library both read it, and differ.
    """
    file.write_bytes(data)
    path = str(file)
    dataset = unstarve.TensorFileDataset([path, path])
    sample = dataset[0]
    if _found(path) != LAYOUT:
        return
    dataset.read_batch([0, 1])
    try:
        loaded = load_file(path, _format(path), Answer(UNSUPPORTED, 0, "", [], -1, -1))
    except UnstarveError:
        return  # libraries check more: checksums, gaps between tensors
    assert same(sample, loaded), f"native {sample}, library {loaded}"


def _found(path: str) -> int:
    (answer,) = find_layouts(Names([path]), np.zeros(1, np.int64), np.array([_format(path)], np.uint8))
    return answer.found


def _format(path: str) -> int:
    code = format_of(path)
    assert code is not None
    return code
