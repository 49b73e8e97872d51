"""JPEGs: through `DecodeCrop`, whole, and with Pillow, which is the fallback of the native decoder."""

from __future__ import annotations

import functools
import io
import itertools
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import torch
from PIL import Image

import unstarve
from fuzz.changes import bytes_changed
from sample_images import image, with_size
from unstarve.errors import UnstarveError
from unstarve.fixes.datasets.images import image_codec, pillow_decoder

_SIDES = (0, 1, 7, 8, 9, 255, 4096, 16384, 65500, 65535)
_MARKERS = (0xC0, 0xC1, 0xC2, 0xC3, 0xC4, 0xC9, 0xCC, 0xDA, 0xDB, 0xDD, 0xD9, 0xDC, 0xE1, 0xEE, 0x01, 0xD0)
_WHOLE_PIXELS = 1 << 21


@functools.cache
def seeds() -> list[bytes]:
    return [
        image(33, 40),
        image(17, 24, quality=100, subsampling=0),
        image(40, 33, subsampling=1, orientation=6),
        image(40, 56, progressive=True),
        image(24, 24, progressive=True, subsampling=0),
        image(20, 20, mode="L"),
        image(16, 16, mode="CMYK"),
        image(24, 40, restart_marker_rows=1),
        image(8, 8, "png"),
    ]


def hostile() -> dict[str, bytes]:
    """Small files that claim to be large, and scans over scans."""
    plain, progressive = seeds()[0], _blank(5000, progressive=True)
    narrow = {
        f"{height} × {width}": with_size(image(height if height < 99 else 1, 64), height, width)
        for height, width in ((16, 65500), (1, 65500), (65500, 1), (65500, 16))
    }
    padded = {f"{name}, padded": _padded(file, 70_000) for name, file in narrow.items()}
    return (
        narrow
        | padded
        | {
            "16 × 65500, whole": image(16, 65500, quality=20),
            "65500 × 16, whole": image(65500, 16, quality=20),
            "16 × 65500, progressive": image(16, 65500, quality=20, progressive=True),
            "65500 × 65500": with_size(plain, 65500, 65500),
            "13000 × 13000, padded": _padded(with_size(plain, 13000, 13000), 200_000),
            "490 scans": _with_scans(progressive, 490),
            "scans without end": _with_scans(progressive, 20_000),
        }
    )


def changed(data: bytes, random: Random) -> bytes:
    """Segments changed, repeated, moved or removed; sizes and scans of any number."""
    segments, coded = _segments(data)
    if not segments:
        return bytes_changed(data, data, random)
    at = random.randrange(len(segments))
    marker, content = segments[at]
    match random.randrange(8):
        case 0 | 1:
            return with_size_anywhere(data, random.choice(_SIDES), random.choice(_SIDES))
        case 2:
            segments[at] = random.choice(_MARKERS), content
        case 3:
            segments[at:at] = [(marker, content)] * random.choice((1, 2, 40))
        case 4:
            del segments[at]
        case 5:
            return _with_scans(data, random.choice((2, 10, 60)))
        case _:
            segments[at] = marker, bytes_changed(content, content, random)[:60_000]
    return _joined(segments) + coded


def run(data: bytes, folder: Path) -> None:
    torch.manual_seed(1)
    errors = [
        _error(unstarve.DecodeCrop(224, "center"), data),
        _error(unstarve.DecodeCrop(32, "random_resized"), data),
        _error(unstarve.DecodeCrop(32, None, dtype=torch.uint8, exif=False), data),
    ]
    (size,) = image_codec.measure([data])
    if not isinstance(size, UnstarveError) and size[0] * size[1] <= _WHOLE_PIXELS:
        errors.append(_error(image_codec.decode_whole, data))
        by_pillow = functools.partial(pillow_decoder.decode, upright=True)
        _error(by_pillow, data)  # it may judge damage differently
    if error := next(filter(None, errors), None):
        raise error


def _error(read: Callable[[bytes], Any], data: bytes) -> UnstarveError | None:
    try:
        read(data)
    except UnstarveError as error:
        return error
    return None


def with_size_anywhere(jpeg: bytes, height: int, width: int) -> bytes:
    """Like `with_size`, also for files that have lost their header."""
    try:
        return with_size(jpeg, height, width)
    except IndexError:
        return jpeg


def _segments(data: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """The segments up to the first scan, and the rest."""
    found = []
    at = 2
    while data[at : at + 1] == b"\xff" and len(data) > at + 4 and data[at + 1] != 0xDA:
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        found.append((data[at + 1], data[at + 4 : at + 2 + length]))
        at += 2 + length
    return found, data[at:]


def _joined(segments: list[tuple[int, bytes]]) -> bytes:
    pieces = [
        bytes((0xFF, marker)) + (len(content) + 2).to_bytes(2, "big") + content
        for marker, content in segments
    ]
    return b"\xff\xd8" + b"".join(pieces)


def _blank(side: int, **options: Any) -> bytes:
    """A grey square, in which a scan takes a few bytes."""
    file = io.BytesIO()
    Image.new("RGB", (side, side), (120, 120, 120)).save(file, "jpeg", **options)
    return file.getvalue()


def _with_scans(jpeg: bytes, count: int) -> bytes:
    """The last scan, which refines what is there, `count` times: each costs a pass over the whole image."""
    start = jpeg.rfind(b"\xff\xda")
    if start < 0:
        return jpeg
    scan = jpeg[start:].removesuffix(b"\xff\xd9")
    return jpeg[:start] + b"".join(itertools.repeat(scan[:2000], count)) + b"\xff\xd9"


def _padded(jpeg: bytes, size: int) -> bytes:
    """Zeros after the coded data, so that the file is long enough for its pixels."""
    return jpeg.removesuffix(b"\xff\xd9") + bytes(size) + b"\xff\xd9"
