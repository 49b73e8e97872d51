"""Files that grow, and the newest events of the processes that write them."""

from __future__ import annotations

import json
import struct
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unstarve.errors import RunFileError
from unstarve.model import Process
from unstarve.record import format as f
from unstarve.record.reader import EVENT_OF, Stream, check_header, chunk_at, epochs_of, process_of

_MOST_ROWS = 300
"""Of a kind and process: enough for the last seconds, or for the last moment of very fast steps."""
_MOST_WORK = 100
"""The same of a worker, as there are many of them."""
_READ_BYTES = 1 << 22
_REPEATED = {"sampled", "system", "transforms", "device", "lost", "end"}
"""Kinds of META of which only the newest matters here."""
_FIELDS = {
    f.BATCH: "batches",
    f.WORK: "works",
    f.SENT: "sents",
    f.STALL: "stalls",
    f.GAUGE: "readings",
    f.PULSE: "pulses",
}
"""Where a `Process` has the events of a kind. The others are not needed to see what happens now."""
_KEPT = {
    kind: _MOST_WORK if kind in (f.WORK, f.SENT) else _MOST_ROWS
    for kind in (*_FIELDS, f.EPOCH_BEGIN, f.EPOCH_END)
}


@dataclass
class GrowingFile:
    """A run file or part, and how far it was read."""

    path: Path
    ended: bool = False
    """Nothing in it is of interest any more."""
    written_s: float = 0.0
    """When it was written to last, in seconds since 1970."""
    _at: int = 0

    def read(self) -> Iterator[tuple[int, int, int, bytes]]:
        """The whole chunks that were added since the last time: stream, kind, row size, payload."""
        try:
            stat = self.path.stat()
            self.written_s = stat.st_mtime
            if stat.st_size > self._at:
                yield from self._read_on()
        except FileNotFoundError:  # folded just now
            return
        except OSError as error:
            raise RunFileError(f"cannot read {self.path}: {error.strerror or error}") from error

    def _read_on(self) -> Iterator[tuple[int, int, int, bytes]]:
        with self.path.open("rb") as file:
            if self._at == 0:
                head = file.read(f.HEADER.size)
                if len(head) < f.HEADER.size:
                    return
                check_header(self.path, head)
                self._at = f.HEADER.size
            room = _READ_BYTES
            while True:
                file.seek(self._at)
                data = file.read(room)
                chunks, used = _whole_chunks(data)
                self._at += used
                yield from chunks
                if len(data) < room:
                    return
                room = _READ_BYTES if used else 2 * room


def _whole_chunks(data: bytes) -> tuple[list[tuple[int, int, int, bytes]], int]:
    """The chunks in there, and how many bytes need not be looked at again.

    What cannot be read is damage if a whole chunk follows; else it is being written, and whole next time.
    """
    chunks, at = [], 0
    while at < len(data):
        found = chunk_at(data, at)
        if found is None:
            following = data.find(f.SYNC, at + 1)
            while following >= 0 and chunk_at(data, following) is None:
                following = data.find(f.SYNC, following + 1)
            if following < 0:
                break
            at = following
            continue
        chunks.append(found)
        at += f.CHUNK.size + len(found[3])
    return chunks, at


class Recent:
    """One process's newest events."""

    def __init__(self, file: GrowingFile) -> None:
        self.file = file
        self.delivered: Counter[int] = Counter()
        """Batches per loader since the process began, without nested ones."""
        self.launch: dict[str, Any] | None = None
        self._metas: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._who: Process | None = None
        self._raw: dict[int, deque[tuple[int, bytes]]] = {}
        """Rows that came in since the last time, still packed."""
        self._events: dict[int, deque[Any]] = {kind: deque(maxlen=most) for kind, most in _KEPT.items()}

    @property
    def who(self) -> Process | None:
        """The process without its events; None until it has said who it is."""
        if self._who is None:
            self._who = process_of(Stream(list(self._metas.values())))
        return self._who

    def take(self, kind: int, row_size: int, payload: bytes) -> None:
        """One chunk that the process wrote; kinds that a later version added are passed over."""
        if kind == f.META:
            self._take_meta(json.loads(payload))
        elif kind in _KEPT and row_size >= f.ROW_KINDS[kind].size:
            if kind == f.BATCH:
                rows = struct.Struct(f"<HH{row_size - 4}x").iter_unpack(payload)
                self.delivered.update(loader for loader, flags in rows if not flags & f.NESTED)
            raw = self._raw.setdefault(kind, deque())
            raw.append((row_size, payload))
            # The oldest go unread when those behind them are enough.
            while len(raw) > _KEPT[kind]:
                raw.popleft()

    def process(self) -> Process | None:
        """The process with its newest events; None when nothing is known of who it is."""
        if self.who is None:
            return None
        self._unpack()
        begins, ends = (tuple(self._events[kind]) for kind in (f.EPOCH_BEGIN, f.EPOCH_END))
        events: dict[str, Any] = {name: tuple(self._events[kind]) for kind, name in _FIELDS.items()}
        return replace(self.who, epochs=epochs_of(begins, ends), **events)

    def _take_meta(self, meta: dict[str, Any]) -> None:
        name = meta["meta"]
        if name == "launch":
            self.launch = meta
        elif name not in ("reserve", "result"):
            # Of a crew, which each epoch has anew, the newest of its loader counts.
            which = (name,) if name in _REPEATED else (name, meta.get("loader"), meta.get("id"))
            self._metas[which] = meta
            self._who = None

    def _unpack(self) -> None:
        for kind, raw in self._raw.items():
            layout, event_of = f.ROW_KINDS[kind], EVENT_OF.get(kind, lambda row: row)
            needed, first = _KEPT[kind], len(raw)
            while needed > 0 and first > 0:
                first -= 1
                needed -= len(raw[first][1]) // raw[first][0]
            for row_size, payload in list(raw)[first:]:
                rows = struct.Struct(f"{layout.format}{row_size - layout.size}x").iter_unpack(payload)
                self._events[kind].extend(map(event_of, rows))
        self._raw = {}
