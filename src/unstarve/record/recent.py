"""Files that grow, and the newest events of the processes that write them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unstarve.errors import RunFileError
from unstarve.model import Crew, Process
from unstarve.record import format as f
from unstarve.record.chunks import Chunk, Scan
from unstarve.record.events import Packed, epochs_of, events_of, unpacked
from unstarve.record.metas import meta_of
from unstarve.record.reader import check_header
from unstarve.record.streams import Stream

_MOST_ROWS = 300
"""Of a kind and process: enough for the last seconds, or for the last moment of very fast steps."""
_MOST_WORK = 100
"""The same of a worker, as there are many of them."""
_READ_BYTES = 1 << 22
_LARGEST_CHUNK = f.CHUNK.size + f.MOST_BYTES
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
    _size: int = 0
    """When it was read last."""
    _version: int = f.VERSION

    def read(self) -> Iterator[Chunk]:
        """The whole chunks that were added since the last time."""
        try:
            stat = self.path.stat()
            self.written_s = stat.st_mtime
            if stat.st_size != self._size:
                self._size = stat.st_size
                yield from self._read_on()
        except FileNotFoundError:  # folded just now
            return
        except OSError as error:
            raise RunFileError(f"cannot read {self.path}: {error.strerror or error}") from error

    def _read_on(self) -> Iterator[Chunk]:
        """What cannot be read is damage if a whole chunk follows; else it is being written."""
        with self.path.open("rb") as file:
            if self._at == 0:
                head = file.read(f.HEADER.size)
                if len(head) < f.HEADER.size:
                    return
                self._version = check_header(self.path, head)
                self._at = f.HEADER.size
            room = _READ_BYTES
            while True:
                file.seek(self._at)
                data = file.read(room)
                scan = Scan(data, self._version)
                yield from scan
                self._at += scan.at
                if len(data) < room:
                    return
                if scan.at:
                    room = _READ_BYTES
                elif room < 2 * _LARGEST_CHUNK:
                    room *= 2
                else:  # whatever begins in the first half would be whole
                    self._at += _LARGEST_CHUNK


class Recent:
    """One process's newest events."""

    def __init__(self, file: GrowingFile) -> None:
        self.file = file
        self.delivered: Counter[int] = Counter()
        """Batches per loader since the process began, without nested ones."""
        self.launch: dict[str, Any] | None = None
        self._said = Stream()
        self._crews: dict[int, Crew] = {}
        """Each epoch has one anew: the newest of its loader counts."""
        self._who: Process | None = None
        self._packed: dict[int, deque[Packed]] = {}
        """Rows that came in since the last time."""
        self._events: dict[int, deque[Any]] = {}

    @property
    def who(self) -> Process | None:
        """The process without its events; None until it has said who it is."""
        if self._who is None:
            said = self._said.process()
            self._who = None if said is None else replace(said, crews=tuple(self._crews.values()))
        return self._who

    def take(self, chunk: Chunk) -> None:
        """One chunk that the process wrote; kinds that a later version added are passed over."""
        kind, row_size, payload = chunk.kind, chunk.row_size, chunk.payload
        if kind == f.META:
            self._take_meta(payload)
        elif kind in _KEPT:
            if kind == f.BATCH:
                rows = f.columns(kind, row_size, "loader", "flags").iter_unpack(payload)
                self.delivered.update(loader for loader, flags in rows if not flags & f.NESTED)
            packed = self._packed.setdefault(kind, deque())
            packed.append((row_size, payload))
            # The oldest go unread when those behind them are enough.
            while len(packed) > _KEPT[kind]:
                packed.popleft()

    def process(self) -> Process | None:
        """The process with its newest events; None when nothing is known of who it is."""
        if self.who is None:
            return None
        self._unpack()
        begins, ends = (tuple(self._events.get(kind, ())) for kind in (f.EPOCH_BEGIN, f.EPOCH_END))
        events: dict[str, Any] = {name: tuple(self._events.get(kind, ())) for kind, name in _FIELDS.items()}
        return replace(self.who, epochs=epochs_of(begins, ends)[0], **events)

    def _take_meta(self, payload: bytes) -> None:
        try:
            meta = meta_of(payload)
        except ValueError:
            return
        if meta is None or meta["meta"] == "result":
            return
        if meta["meta"] == "launch":
            self.launch = meta
            return
        if meta["meta"] == "crew":
            self._crews[meta["loader"]] = Crew(meta["loader"], meta["epoch"], tuple(meta["pids"]))
        else:
            self._said.tell(meta)
        self._who = None

    def _unpack(self) -> None:
        for kind, packed in self._packed.items():
            needed, first = _KEPT[kind], len(packed)
            while needed > 0 and first > 0:
                first -= 1
                needed -= len(packed[first][1]) // packed[first][0]
            newest = list(packed)[first:]
            kept = self._events.setdefault(kind, deque(maxlen=_KEPT[kind]))
            kept.extend(events_of(kind, newest)[0] if kind in _FIELDS else unpacked(kind, newest))
        self._packed = {}
