"""A JPEG without what it says about how it was held, for those who want pictures as they are stored."""

from __future__ import annotations

_BEGIN = b"\xff\xd8\xff"
_EXIF = b"\xff\xe1"
_NAME = b"Exif\x00\x00"
_NO_LONGER = b"exif\x00\x00"
"""Nobody looks for an orientation in a segment of this name."""
_SCAN = 0xDA


def as_stored(picture: bytes) -> bytes:
    """Return a JPEG whose EXIF segments are hidden; the very same bytes where there is none, or no JPEG."""
    if not picture.startswith(_BEGIN) or _NAME not in picture:
        return picture
    hidden = bytearray(picture)
    at = 2
    while at + 4 <= len(hidden) and hidden[at] == 0xFF and hidden[at + 1] != _SCAN:
        name = at + 4
        if hidden[at : at + 2] == _EXIF and hidden[name : name + len(_NAME)] == _NAME:
            hidden[name : name + len(_NAME)] = _NO_LONGER
        at += 2 + int.from_bytes(hidden[at + 2 : at + 4], "big")
    return bytes(hidden)
