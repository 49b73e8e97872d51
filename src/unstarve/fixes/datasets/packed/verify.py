"""Every checksum of a packed file, compared."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unstarve.errors import DataFileError
from unstarve.fixes.datasets.packed.access import Access
from unstarve.fixes.datasets.packed.contents import Contents
from unstarve.fixes.datasets.packed.file import PackedFile
from unstarve.fixes.datasets.packed.source import FileSource

_BYTES_AT_ONCE = 16 << 20
_MOST_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class Damaged:
    """A sample whose bytes are not those that were packed."""

    sample: int
    name: str | None


@dataclass(frozen=True)
class Verified:
    """What came out of comparing."""

    samples: int
    size_bytes: int
    damaged: tuple[Damaged, ...]


def verify(path: Path, advance: Callable[[int, int], None] = lambda done, total: None) -> Verified:
    """Compare all checksums. DataFileError for what is not a packed file, or has lost its index.

    `advance` is called with how many samples were compared so far, and how many there are.
    """
    file = PackedFile(os.fspath(path))
    contents = Contents(file, verify=False)
    access = Access(file, "auto")
    total = file.index.samples
    mean_bytes = max(file.index.footer.index_offset // max(total, 1), 1)
    step = max(1, min(_BYTES_AT_ONCE // mean_bytes, _MOST_AT_ONCE))
    damaged: list[Damaged] = []
    for start in range(0, total, step):
        samples = np.arange(start, min(start + step, total), dtype=np.int64)
        file.check_size()
        found = contents.checksums(samples, FileSource(access, access.way()))
        for sample, crc in zip(samples.tolist(), found, strict=True):
            if crc != int(file.checksums[sample]):
                damaged.append(Damaged(sample, _name(file, sample)))
        advance(start + len(samples), total)
    return Verified(total, file.size_bytes, tuple(damaged))


def _name(file: PackedFile, sample: int) -> str | None:
    try:
        return file.name(sample)
    except DataFileError:  # the names are damaged too
        return None
