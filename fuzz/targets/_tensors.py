"""What the targets of tensor files share: reading one in every way, natively and by the Python twin."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import unstarve
from unstarve.fixes.io.formats import LAYOUT, Answer, find_layouts, format_of
from unstarve.fixes.io.reading import Names
from unstarve.fixes.io.twins import formats as twin


def read(file: Path, data: bytes) -> None:
    """Read a file as a sample, and as a batch where that is not torch's work."""
    file.write_bytes(data)
    found = _layout(str(file))
    dataset = unstarve.TensorFileDataset([str(file), str(file)])
    dataset[0]
    if found == LAYOUT:
        dataset.read_batch([0, 1])


def _layout(path: str) -> int:
    """What is found in the file. AssertionError where the Python twin finds another layout."""
    names, format_code = Names([path]), format_of(path)
    assert format_code is not None
    starts, formats = np.zeros(1, np.int64), np.array([format_code], np.uint8)
    (native,) = find_layouts(names, starts, formats)
    python = Answer(*twin.find_layouts(names.block, starts, formats, False, 1)[0])
    layouts = [(one.text, one.columns) if one.found == LAYOUT else None for one in (native, python)]
    assert layouts[0] == layouts[1], f"native {native}, twin {python}"
    return native.found
