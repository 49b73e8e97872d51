"""What kind of file a path is, by its first bytes: tar, Parquet, HDF5, JPEG …"""

from __future__ import annotations

import os
import stat
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path, PurePath

_HEAD_BYTES = 512
_LOOKED_AT = 8
"""Files with the same ending that are opened; most of them decide for the others."""
_ZARR_METADATA = ("zarr.json", ".zarray", ".zgroup")

MAPPED = "memmap"
"""Without a known beginning, and mapped into memory: tokens, mostly."""
_TEXT_ENDINGS = (".json", ".jsonl", ".csv", ".tsv", ".txt")
_BEGINNINGS = (
    (b"PAR1", "Parquet"),
    (b"ARROW1", "Arrow"),
    (b"\xff\xff\xff\xff", "Arrow"),
    (b"\x89HDF\r\n\x1a\n", "HDF5"),
    (b"\x93NUMPY", "npy"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"\x1a\x45\xdf\xa3", "video"),
    (b"fLaC", "audio"),
    (b"OggS", "audio"),
    (b"ID3", "audio"),
    (b"UNSTPACK", "packed"),
    (b"SQLite format 3\0", "SQLite"),
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)
_RIFF = {b"WEBP": "WebP", b"AVI ": "video", b"WAVE": "audio"}


def kinds_of(mapped: Mapping[str, bool]) -> dict[str, str]:
    """The kind of each path, empty when unknown; `mapped` says which paths were mapped into memory.

    A few files of each ending are opened. A folder (with a slash at its end) has the kind of the files in it.
    """
    groups: dict[tuple[str, bool], list[str]] = defaultdict(list)
    folders = []
    for path, is_mapped in mapped.items():
        if not path or path.endswith("/"):
            folders.append(path)
        else:
            groups[PurePath(path).suffix.lower(), is_mapped].append(path)
    kinds: dict[str, str] = {}
    for (ending, is_mapped), paths in groups.items():
        found = {path: _kind(path, ending, is_mapped=is_mapped) for path in paths[:_LOOKED_AT]}
        usual = Counter(found.values()).most_common(1)[0][0]
        kinds |= {path: found.get(path, usual) for path in paths}
    inside: dict[str, Counter[str]] = defaultdict(Counter)
    for path, kind in kinds.items():
        inside[path[: path.rindex("/") + 1]][kind] += 1
    everywhere = Counter(kinds.values())
    for folder in folders:
        most = (inside.get(folder) or everywhere).most_common(1)
        kinds[folder] = most[0][0] if most and folder else ""
    return kinds


def kind_of(head: bytes, ending: str = "") -> str:
    """The kind that the first bytes of a file tell; empty when they tell nothing."""
    for beginning, kind in _BEGINNINGS:
        if head.startswith(beginning):
            return kind
    if head[257:262] == b"ustar":
        return "tar"
    if head[16:20] == b"\xde\xc0\xef\xbe":
        return "LMDB"
    if head.startswith(b"RIFF"):
        return _RIFF.get(head[8:12], "")
    if head[4:8] in (b"ftyp", b"moov") or (head[:1] == b"G" and head[188:189] == b"G"):
        return "video"
    if head.startswith(b"PK\x03\x04"):
        return _zip_kind(head, ending)
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") < 1 << 32:
        return "safetensors"
    if len(head) >= 12 and _masked_crc(head[:8]) == int.from_bytes(head[8:12], "little"):
        return "TFRecord"
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return ".pt" if ending in (".pt", ".pth") else "pickle"
    return "text" if ending in _TEXT_ENDINGS else ""


def _kind(path: str, ending: str, *, is_mapped: bool) -> str:
    if _in_zarr(path):
        return "Zarr"
    return kind_of(_head(path), ending) or (MAPPED if is_mapped else "")


def _zip_kind(head: bytes, ending: str) -> str:
    size = int.from_bytes(head[26:28], "little")
    first = head[30 : 30 + size]
    if first.endswith((b"/data.pkl", b"/byteorder")) or ending in (
        ".pt",
        ".pth",
        ".ckpt",
    ):
        return ".pt"
    return "npz" if first.endswith(b".npy") else "zip"


def _in_zarr(path: str) -> bool:
    parents = list(PurePath(path).parents)[:4]
    if any(parent.suffix == ".zarr" for parent in parents):
        return True
    return any((Path(parent) / name).is_file() for parent in parents for name in _ZARR_METADATA)


def _head(path: str) -> bytes:
    """The first bytes; none where the file is gone, or is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return b""
    try:
        return os.read(fd, _HEAD_BYTES) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(fd)


def _masked_crc(data: bytes) -> int:
    """CRC-32C, as TFRecord masks it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
