"""Bytes of a run file ⇄ chunks. Scanning takes time linear in the number of bytes, whatever they are."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from unstarve.errors import NewerFormatError, NotARunError
from unstarve.record import format as f

_HASHED_IN_VAIN = 2
"""How many times the size of the file may be hashed for chunks that turn out to be none: a hostile file may
nest the headers of chunks in each other."""
_FREE_BYTES = 1 << 20
"""Bytes that may be hashed in vain in any file, however small."""
_READ_BYTES = 1 << 22
_LARGEST_CHUNK = f.CHUNK.size + f.MOST_BYTES


class Chunk(NamedTuple):
    """One whole chunk."""

    stream: int
    kind: int
    row_size: int
    payload: bytes


def chunk(stream: int, kind: int, payload: bytes, row_size: int = 0) -> bytes:
    """One framed chunk. Raises ValueError when a reader would not accept it."""
    if not _plausible(kind, row_size, len(payload)):
        raise ValueError(f"cannot frame {len(payload)} bytes as a chunk of kind {kind}")
    head = f.CHUNK_HEAD.pack(stream, kind, row_size, len(payload))
    crc = zlib.crc32(payload, zlib.crc32(head))
    return f.CHUNK.pack(f.SYNC, stream, kind, row_size, len(payload), crc) + payload


class Scan:
    """Iterates over the whole chunks in the bytes of a file and skips damage between them."""

    def __init__(self, data: bytes, version: int, at: int = 0) -> None:
        self.at = at
        """Where the last whole chunk ends."""
        self.damaged = 0
        """Bytes skipped before it."""
        self._data = data
        self._view = memoryview(data)
        self._version = version
        self._spare_bytes = _HASHED_IN_VAIN * len(data) + _FREE_BYTES

    def __iter__(self) -> Iterator[Chunk]:
        look = self.at
        while look >= 0 and self._spare_bytes > 0:
            found = self.whole_at(look)
            if found is None:
                look = self._data.find(f.SYNC, look + 1)
                continue
            self.damaged += look - self.at
            self.at = look = look + f.CHUNK.size + len(found.payload)
            yield found

    def whole_at(self, at: int) -> Chunk | None:
        """The whole chunk that begins there, or None."""
        if at + f.CHUNK.size > len(self._data):
            return None
        sync, stream, kind, row_size, length, crc = f.CHUNK.unpack_from(self._data, at)
        begin, end = at + f.CHUNK.size, at + f.CHUNK.size + length
        if sync != f.SYNC or end > len(self._data) or not _plausible(kind, row_size, length):
            return None
        payload = self._view[begin:end]
        if crc != zlib.crc32(payload, self._hashed_before(at)):
            self._spare_bytes -= length
            return None
        return Chunk(stream, kind, row_size, bytes(payload))

    def _hashed_before(self, at: int) -> int:
        """The CRC of the part of the header that it covers."""
        head = at + len(f.SYNC)
        return 0 if self._version == 1 else zlib.crc32(self._view[head : head + f.CHUNK_HEAD.size])


class FileScan:
    """Iterates over the whole chunks of an open file, from a place on, without holding all of it in memory.

    Bytes that are no chunk are damage if a whole chunk follows, else they may still be being written.
    """

    def __init__(self, file: BinaryIO, version: int, at: int = f.HEADER.size) -> None:
        self.at = at
        """Where the last whole chunk ends; up to date when the iteration is over."""
        self.damaged = 0
        """Bytes skipped before it."""
        self.left = 0
        """Bytes after it."""
        self._file = file
        self._version = version

    def __iter__(self) -> Iterator[Chunk]:
        span = _READ_BYTES
        while True:
            self._file.seek(self.at)
            data = self._file.read(span)
            scan = Scan(data, self._version)
            yield from scan
            self.at += scan.at
            self.damaged += scan.damaged
            self.left = len(data) - scan.at
            if len(data) < span:
                return
            if scan.at:
                span = _READ_BYTES
            elif span < 2 * _LARGEST_CHUNK:
                span *= 2
            else:  # a chunk that begins in the first half would be whole
                self.at += _LARGEST_CHUNK
                self.damaged += _LARGEST_CHUNK


def _plausible(kind: int, row_size: int, length: int) -> bool:
    """Whether a chunk may have this header."""
    if kind == f.META:
        return row_size == 0 and 0 < length <= f.MOST_META_BYTES
    known = f.ROW_KINDS.get(kind)
    if known is None:
        return kind < f.MOST_KINDS and 0 < length <= f.MOST_BYTES
    return row_size >= known.size and 0 < length <= f.MOST_BYTES and length % row_size == 0


def check_header(path: Path, data: bytes) -> int:
    """The format version of a file. Raises `NotARunError` or `NewerFormatError` if it cannot be read."""
    if len(data) < f.HEADER.size or not data.startswith(f.MAGIC):
        raise NotARunError(f"{path} is not an unstarve run file")
    version: int = f.HEADER.unpack_from(data)[1]
    if version > f.VERSION:
        raise NewerFormatError(
            f"{path} was written by a newer unstarve (format {version}, this one reads up to {f.VERSION}); "
            "upgrade with: pip install -U unstarve"
        )
    return version
