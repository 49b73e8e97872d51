"""Append chunks to a run file from inside a training process, without ever hurting it.

A row is packed and kept in a ledger; rows are written together, at most `FLUSH_NS` later while training goes
on, so a ``kill -9`` loses no more than that. The first failed write (disk full, quota, unmounted) ends the
recording: training goes on and the reason is written into the space reserved at the head of the file.
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
from unstarve.native import native
from unstarve.record import format as f
from unstarve.record.chunks import chunk

FLUSH_NS = 50_000_000
_RESERVE_AT = f.HEADER.size
_MOST_CHARACTERS = 600
"""Of a text in the reserved space: JSON may use six bytes for one character."""


def meta_chunk(stream: int, meta: str, fields: dict[str, Any]) -> bytes:
    """A META chunk; values that JSON does not know are written as their ``str``."""
    payload = json.dumps({"meta": meta, **fields}, default=str, separators=(",", ":")).encode()
    if len(payload) > f.MOST_META_BYTES:
        return meta_chunk(stream, "lost", {"message": f"{meta}: {len(payload)} bytes are too many to record"})
    return chunk(stream, f.META, payload)


def reserve_chunk(stream: int, meta: str = "reserve", **fields: Any) -> bytes:
    """A META chunk of fixed size, so that one can be overwritten by another."""
    short = {
        name: value[:_MOST_CHARACTERS] if isinstance(value, str) else value for name, value in fields.items()
    }
    return chunk(stream, f.META, json.dumps({"meta": meta} | short).encode().ljust(f.RESERVE_BYTES))


def _created(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)


def rows_chunks(stream: int, kind: int, rows: bytes) -> Iterator[bytes]:
    """Row chunks, none of them larger than a reader accepts."""
    size = f.ROW_KINDS[kind].size
    most = f.MOST_BYTES // size * size
    for at in range(0, len(rows), most):
        yield chunk(stream, kind, rows[at : at + most], size)


class PythonLedger:
    """Packed rows that are not written yet, of all threads of a process, and the switches its hot paths read.

    The twin of ``_native.Ledger``.
    """

    __slots__ = ("_rows", "active", "has_device", "next_flush_ns", "own_ns", "special")

    def __init__(self) -> None:
        self._rows: dict[int, list[bytes]] = {}
        self.active = True
        """Whether to record anything now."""
        self.special = True
        """Whether a batch needs more than timing: limits to check, batches to replay."""
        self.has_device = False
        """Whether there may be an accelerator whose side of a wait is timed, too."""
        self.own_ns = 0
        """Time unstarve itself spent since the last recorded batch."""
        self.next_flush_ns = 0
        """Deadline for writing the rows."""

    def append(self, kind: int, row: bytes) -> None:
        """Keep one row."""
        self._rows.setdefault(kind, []).append(row)

    def take(self) -> list[tuple[int, bytes]]:
        """The rows appended since the last call, by kind."""
        rows, self._rows = self._rows, {}
        return [(kind, b"".join(rows[kind])) for kind in sorted(rows)]


_native: Any = native()
Ledger: type[PythonLedger] = PythonLedger if _native is None else _native.Ledger


class Writer:
    """One process's part of a run, for all its threads. Not for use in a forked child: see `abandon`.

    A file that reaches `segment_bytes` is closed, and the next one begun, so that it can be thinned; see
    `record.fold`. Raises `OSError` when the file cannot be created or its head cannot be written.
    """

    def __init__(self, path: Path, segment_bytes: int | None = None) -> None:
        self._stream = int.from_bytes(os.urandom(4), "little")
        self._path = path
        self._segment_bytes = segment_bytes
        self._segments = 1
        self._fd = _created(path)
        self.ledger = Ledger()
        """Rows not yet written. Whoever appends to it directly must call `flush` in time."""
        self._unwritten: list[tuple[int, bytes]] = []
        """Rows taken out of the ledger that may not be in the file yet."""
        self._size = 0
        self._lock = threading.RLock()
        self.failed: str | None = None
        if not self._append(f.header() + reserve_chunk(self._stream)):
            os.ftruncate(self._fd, 0)  # an empty part tells the launcher that a process could not write
            self.abandon()
            raise OSError(self.failed)

    def row(self, kind: int, now_ns: int, row: tuple[int | bytes, ...]) -> None:
        """Keep one row; it is written soon."""
        self.ledger.append(kind, f.ROW_KINDS[kind].pack(*row))
        if now_ns >= self.ledger.next_flush_ns:
            self.flush(now_ns)

    def meta(self, meta: str, **fields: Any) -> None:
        """Write one META chunk at once, after the rows kept so far."""
        with self._lock:
            self.flush(time.perf_counter_ns())
            self._append(meta_chunk(self._stream, meta, fields))

    def flush(self, now_ns: int) -> None:
        """Write all rows kept so far."""
        self.ledger.next_flush_ns = now_ns + FLUSH_NS
        with self._lock:
            self._unwritten += self.ledger.take()
            if self._segment_bytes is not None and self._size >= self._segment_bytes:
                self._begin_segment(self._path)
            if self._unwritten:
                chunks = [
                    one for kind, rows in self._unwritten for one in rows_chunks(self._stream, kind, rows)
                ]
                self._append(b"".join(chunks))

    def close(self) -> None:
        """Write all rows kept so far and close the file. Safe to call twice."""
        self.flush(time.perf_counter_ns())
        self.abandon()

    def _begin_segment(self, first: Path) -> None:
        if self.failed is not None or self._fd < 0:
            return
        if (first.parent / f.FULL).exists():
            self._fail(f"{STOPPED_EARLY}: the run file has reached its limit; see --max-size")
            return
        try:
            fd = _created(first.with_name(f.segment_name(first.stem, self._segments)))
        except OSError:
            return  # this one goes on; the next flush tries again
        head = f.header() + reserve_chunk(self._stream)
        before, self._fd, self._size = self._fd, fd, 0
        self._segments += 1
        os.close(before)
        unwritten = self._unwritten
        self._append(head)
        self._unwritten = unwritten

    def abandon(self) -> None:
        """Close the file without writing. A forked child does this with its parent's writer."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _append(self, data: bytes) -> bool:
        """Write at the end of the file and clear `_unwritten`. False if that failed, now or before.

        If a signal handler raises meanwhile, nothing counts as written and the next call writes at the same
        place.
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
        # Blocks that exist can be overwritten on a full disk. If even that fails, the storage is gone, and
        # the reader sees that the end of the record is missing.
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, reserve_chunk(self._stream, "lost", message=message), _RESERVE_AT)
