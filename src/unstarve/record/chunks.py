"""Bytes of a run file ⇄ chunks, in a time that grows with the bytes alone, whatever they are."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from unstarve.record import format as f

_HASHED_IN_VAIN = 2
"""Times the size of the file that may be hashed for chunks that turn out to be none: headers of chunks may be
nested in each other on purpose."""
_FREE_BYTES = 1 << 20
"""The same for any file, however small."""


class Chunk(NamedTuple):
    """One whole chunk."""

    stream: int
    kind: int
    row_size: int
    payload: bytes


def chunk(stream: int, kind: int, payload: bytes, row_size: int = 0) -> bytes:
    """One framed chunk. Raises ValueError when no reader would take it for one."""
    if not _plausible(kind, row_size, len(payload)):
        raise ValueError(f"{len(payload)} bytes make no chunk of kind {kind}")
    head = f.CHUNK_HEAD.pack(stream, kind, row_size, len(payload))
    crc = zlib.crc32(payload, zlib.crc32(head))
    return f.CHUNK.pack(f.SYNC, stream, kind, row_size, len(payload), crc) + payload


class Scan:
    """Iterates over the whole chunks in the bytes of a file; damage between them is passed over."""

    def __init__(self, data: bytes, version: int, at: int = 0) -> None:
        self.at = at
        """Where the last whole chunk ends."""
        self.damaged = 0
        """Bytes that were passed over before it."""
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
        """The whole chunk that begins there; None where none does."""
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
        """The CRC of what is covered of the header."""
        head = at + len(f.SYNC)
        return 0 if self._version == 1 else zlib.crc32(self._view[head : head + f.CHUNK_HEAD.size])


def _plausible(kind: int, row_size: int, length: int) -> bool:
    """Whether a chunk may have such a header."""
    if kind == f.META:
        return row_size == 0 and 0 < length <= f.MOST_META_BYTES
    known = f.ROW_KINDS.get(kind)
    if known is None:
        return kind < f.MOST_KINDS and 0 < length <= f.MOST_BYTES
    return row_size >= known.size and 0 < length <= f.MOST_BYTES and length % row_size == 0
