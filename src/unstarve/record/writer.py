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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unstarve.model.recorded import STOPPED_EARLY
from unstarve.record import format as f
from unstarve.record.chunks import chunk
from unstarve.record.ledger import Ledger
from unstarve.record.ledger import PythonLedger as PythonLedger  # what a writer's `ledger` is like

FLUSH_NS = 50_000_000
_RESERVE_AT = f.HEADER.size
_MOST_CHARACTERS = 600
"""Of a text in the reserved space: JSON may take six bytes for one."""


def meta_chunk(stream: int, meta: str, fields: dict[str, Any]) -> bytes:
    """A META chunk; what JSON cannot say is written as its ``str``."""
    payload = json.dumps({"meta": meta, **fields}, default=str, separators=(",", ":")).encode()
    if len(payload) > f.MOST_META_BYTES:
        return meta_chunk(stream, "lost", {"message": f"{meta}: {len(payload)} bytes are too many to record"})
    return chunk(stream, f.META, payload)


def reserve_chunk(stream: int, meta: str = "reserve", **fields: Any) -> bytes:
    """A META chunk that may take the place of another one: always of the same size."""
    short = {
        name: value[:_MOST_CHARACTERS] if isinstance(value, str) else value for name, value in fields.items()
    }
    return chunk(stream, f.META, json.dumps({"meta": meta} | short).encode().ljust(f.RESERVE_BYTES))


def _rows_chunks(stream: int, kind: int, rows: bytes) -> Iterator[bytes]:
    """Row chunks, none of them larger than a reader takes."""
    size = f.ROW_KINDS[kind].size
    most = f.MOST_BYTES // size * size
    for at in range(0, len(rows), most):
        yield chunk(stream, kind, rows[at : at + most], size)


class Writer:
    """One process's part of a run, for all its threads. Not for use in a forked child: see `abandon`.

    Raises `OSError` when the file cannot be made or has no room for its head.
    """

    def __init__(self, path: Path) -> None:
        self._stream = int.from_bytes(os.urandom(4), "little")
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self.ledger = Ledger()
        """Rows that are not yet written; who puts some there directly has to call `flush` in time."""
        self._unwritten: list[tuple[int, bytes]] = []
        """What was taken out of the ledger and is not known to be in the file."""
        self._size = 0
        self._lock = threading.RLock()
        self.failed: str | None = None
        if not self._append(f.header() + reserve_chunk(self._stream)):
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
            self._unwritten += self.ledger.take()
            if self._unwritten:
                chunks = [
                    one for kind, rows in self._unwritten for one in _rows_chunks(self._stream, kind, rows)
                ]
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
        """Write it behind what is there; nothing that was taken is unwritten then.

        If a signal raises meanwhile, nothing counts as written, and the next call writes at the same place.
        """
        if self.failed is None and self._fd >= 0:
            end = self._size
            try:
                view = memoryview(data)
                while view:
                    written = os.pwrite(self._fd, view, end)
                    end += written
                    view = view[written:]
                self._size = end
            except OSError as error:
                self._fail(f"{STOPPED_EARLY}: {error.strerror or error}")
        self._unwritten = []
        return self.failed is None and self._fd >= 0

    def _fail(self, message: str) -> None:
        self.failed = message
        # Blocks that exist already can be written on a full disk. If even that fails, the storage is gone,
        # and the missing end of the record tells the reader.
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, reserve_chunk(self._stream, "lost", message=message), _RESERVE_AT)
