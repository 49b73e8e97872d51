"""Append chunks to a run file from inside a training process, without ever hurting it.

Taking a row is packing it and keeping the bytes; rows are written together, at most `FLUSH_NS` later while
training goes on, so that a ``kill -9`` loses no more than that. The first failed write (disk full, quota,
unmounted) ends the recording: training goes on and the reason is put into the space reserved at the head
of the file.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import zlib
from pathlib import Path
from typing import Any

from unstarve.record import format as f
from unstarve.record.ledger import Ledger
from unstarve.record.ledger import PythonLedger as PythonLedger  # what a writer's `ledger` is like

FLUSH_NS = 50_000_000
_RESERVE_AT = f.HEADER.size


def chunk(stream: int, kind: int, payload: bytes, row_size: int = 0) -> bytes:
    """One framed chunk."""
    return f.CHUNK.pack(f.SYNC, stream, kind, row_size, len(payload), zlib.crc32(payload)) + payload


def meta_chunk(stream: int, meta: str, fields: dict[str, Any]) -> bytes:
    """A META chunk; what JSON cannot say is written as its ``str``."""
    payload = json.dumps({"meta": meta, **fields}, default=str, separators=(",", ":")).encode()
    return chunk(stream, f.META, payload)


def _reserve_chunk(stream: int, lost: str | None = None) -> bytes:
    """The reserved chunk, empty or telling what was lost; always of the same size."""
    fields: dict[str, Any] = {"meta": "reserve"} if lost is None else {"meta": "lost", "message": lost[:1000]}
    return chunk(stream, f.META, json.dumps(fields).encode().ljust(f.RESERVE_BYTES))


class Writer:
    """One process's part of a run, for all its threads. Not for use in a forked child: see `abandon`.

    Raises `OSError` when the file cannot be made or has no room for its head.
    """

    def __init__(self, path: Path) -> None:
        self._stream = int.from_bytes(os.urandom(4), "little")
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self.ledger = Ledger()
        """Rows that are not yet written; who puts some there directly has to call `flush` in time."""
        self._size = 0
        self._lock = threading.RLock()
        self.failed: str | None = None
        if not self._append(f.header() + _reserve_chunk(self._stream)):
            os.ftruncate(self._fd, 0)  # an empty part tells the launcher that somebody had no room
            self.abandon()
            raise OSError(self.failed)

    def row(self, kind: int, now_ns: int, row: tuple[int | bytes, ...]) -> None:
        """Take one row; written soon."""
        self.ledger.append(kind, f.ROW_KINDS[kind].pack(*row))
        if now_ns >= self.ledger.next_flush_ns:
            self.flush(now_ns)

    def meta(self, meta: str, **fields: Any) -> None:
        """Write one META chunk at once, behind the rows taken so far."""
        with self._lock:
            self.flush(time.perf_counter_ns())
            self._append(meta_chunk(self._stream, meta, fields))

    def flush(self, now_ns: int) -> None:
        """Write what was taken."""
        self.ledger.next_flush_ns = now_ns + FLUSH_NS
        with self._lock:
            chunks = [
                chunk(self._stream, kind, rows, f.ROW_KINDS[kind].size) for kind, rows in self.ledger.take()
            ]
            if chunks:
                self._append(b"".join(chunks))

    def close(self) -> None:
        """Write what was taken and let go of the file. Safe to call twice."""
        self.flush(time.perf_counter_ns())
        self.abandon()

    def abandon(self) -> None:
        """Let go of the file without writing: what a forked child does with its parent's writer."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _append(self, data: bytes) -> bool:
        if self.failed is not None or self._fd < 0:
            return False
        try:
            view = memoryview(data)
            while view:
                written = os.pwrite(self._fd, view, self._size)
                self._size += written
                view = view[written:]
        except OSError as error:
            self._fail(f"recording stopped early: {error.strerror or error}")
        return self.failed is None

    def _fail(self, message: str) -> None:
        self.failed = message
        # Blocks that exist already can be written on a full disk. If even that fails, the storage is gone,
        # and the missing end of the record tells the reader.
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, _reserve_chunk(self._stream, message), _RESERVE_AT)
