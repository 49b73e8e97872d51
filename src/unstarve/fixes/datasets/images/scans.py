"""How many times over the pixels of a JPEG are coded: a small file can do so hundreds of times.

The twin of native/jpeg_scans.cpp, for files that Pillow decodes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from unstarve.errors import ImageError

if TYPE_CHECKING:
    from typing_extensions import Buffer

_MAX_SCANNED_PIXELS = 2**32
_MAX_SCANS = 500

# Not those without a length behind them, nor bytes of coded data that only look like one.
_MARKER = re.compile(rb"\xff([^\x00\x01\xd0-\xd8\xff])(?=(.{8}))?", re.DOTALL)
_END, _SCAN = 0xD9, 0xDA
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def check_scans(jpeg: Buffer, pixels: int) -> None:
    """Raise ImageError for a JPEG of so many pixels with more scans than are decoded at that size."""
    scans, most = count_scans(jpeg), min(_MAX_SCANS, _MAX_SCANNED_PIXELS // max(pixels, 1))
    if scans > most:
        raise ImageError(f"it has {scans} scans; the limit at its size is {most}")


def count_scans(jpeg: Buffer) -> int:
    """Return the scans up to the end marker: 1 where the first holds all of the image."""
    scans = components = at = 0
    is_progressive = False
    while (found := _MARKER.search(jpeg, at)) is not None:
        code, rest = found[1][0], found[2]
        if code == _END or rest is None:
            break
        if code in _FRAMES:
            components, is_progressive = rest[7], code & 3 == 2
        elif code == _SCAN:
            scans += 1
            if not is_progressive and rest[2] == components:
                return 1
        at = found.start() + 2 + max(int.from_bytes(rest[:2], "big"), 2)
    return scans
