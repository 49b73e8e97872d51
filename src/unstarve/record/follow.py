"""Read a run while it is being written: each time only what is new.

A follower keeps the last seconds of each process's events, however long the run lasts, and unpacks no more
rows than it keeps: a run of a hundred thousand batches a second costs hardly more than any other.
"""

from __future__ import annotations

import os
import socket
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unstarve.errors import RunFileError
from unstarve.model import Crew, Process, Run, Tail
from unstarve.record import format as f
from unstarve.record.chunks import Chunk, FileScan, check_header
from unstarve.record.events import epochs_of, events_of, unpacked
from unstarve.record.loader_names import tell_apart
from unstarve.record.metas import meta_of
from unstarve.record.process_stream import ProcessStream
from unstarve.record.rows import Packed, rows_of
from unstarve.record.run_file import (
    launch_of,
    launcher_alive,
    parts_folder,
    parts_of,
    result_of,
    run_of_parts,
)

WINDOW_S = 5.0
"""How far back a follower keeps events."""
_MOST_PROCESSES = 1 << 14
"""Processes alive at one time; any more are ignored."""
_SILENT_S = 10.0
"""A process that has written nothing for this long may be gone."""
_MOST_ROWS = 300
"""Rows kept of each kind and process: enough for the last seconds, or the last moment of very fast steps."""
_MOST_WORK = 100
"""Rows kept of a worker's kinds; there are many workers."""
_FIELDS = {
    f.BATCH: "batches",
    f.WORK: "works",
    f.SENT: "sents",
    f.STALL: "stalls",
    f.GAUGE: "readings",
    f.PULSE: "pulses",
}
"""The field of `Process` for the events of each kind. A live view does not need the other kinds."""
_KEPT = {
    kind: _MOST_WORK if kind in (f.WORK, f.SENT) else _MOST_ROWS
    for kind in (*_FIELDS, f.EPOCH_BEGIN, f.EPOCH_END)
}


class Follower:
    """Follows one run. Raises `RunFileError` if it does not exist or cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: dict[Path, GrowingFile] = {path: GrowingFile(path)}
        self._recent: dict[int, RecentEvents] = {}
        self._parts = parts_folder(path)
        self._listed_ns = -1
        self._identity: tuple[int, int, int] | None = None
        self._result: dict[str, Any] | None = None
        self._host = socket.gethostname()
        self._written_s: float | None = None
        """Time of the last write to any file, in seconds since 1970."""

    def read(self) -> Tail:
        """The run as it is now."""
        self._look_for_result()
        if self._result is None or self._result.get("folded") is False:
            self._look_for_parts()
            for file in list(self._files.values()):
                self._read_new(file)
            self._forget_ended_workers()
        return self._tail()

    def _look_for_result(self) -> None:
        """The run file grows only once: when the launcher folds the parts into it."""
        try:
            stat = self.path.stat()
        except OSError as error:
            if self._identity is not None:
                raise RunFileError(f"{self.path} was removed while it was being read") from error
            reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror or error
            raise RunFileError(f"cannot read {self.path}: {reason}") from error
        # A result that is written into the reserved space does not change the size.
        identity = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if identity != self._identity:
            known_before, self._identity = self._identity is not None, identity
            if not known_before:
                self._read_new(self._files[self.path])
            self._result = result_of(self.path)
            self._written_s = max(self._written_s or 0.0, stat.st_mtime) if self._result else self._written_s

    def _look_for_parts(self) -> None:
        try:
            changed_ns = self._parts.stat().st_mtime_ns
            if changed_ns != self._listed_ns:
                parts, first = parts_of(self._parts), len(self._files) == 1
                known = {path: file for path, file in self._files.items() if path in {self.path, *parts}}
                for path in parts:  # what has been folded since the first look has been read before
                    if first or path.name != f.FOLDED:
                        known.setdefault(path, GrowingFile(path))
                self._files = known
                # One second: a part created within the clock's resolution must be found by the next listing.
                self._listed_ns = changed_ns if time.time_ns() - changed_ns > 10**9 else -1
        except OSError:
            return  # just folded, or it never existed

    def _read_new(self, file: GrowingFile) -> None:
        if file.ended:
            return
        for chunk in file.read():
            recent = self._recent.get(chunk.stream)
            if recent is None and len(self._recent) < _MOST_PROCESSES:
                recent = self._recent[chunk.stream] = RecentEvents(file)
            if recent is not None:
                recent.file = file
                recent.add(chunk)
        self._written_s = max(self._written_s or 0.0, file.written_s)

    def _forget_ended_workers(self) -> None:
        """Workers that ended or vanished; every epoch may start new ones."""
        now_ns = time.perf_counter_ns()
        for stream, recent in list(self._recent.items()):
            who = recent.who
            if who is None or not who.worker or who.host != self._host:
                continue
            ended = who.end_ns is not None and who.end_ns < now_ns - WINDOW_S * 1e9
            silent = recent.file.written_s < time.time() - _SILENT_S
            if ended or (silent and not _exists(who.pid)):
                del self._recent[stream]
                recent.file.ended = recent.file.path != self.path

    def _tail(self) -> Tail:
        launch = next((r.launch for r in self._recent.values() if r.launch is not None), None)
        processes = [p for r in self._recent.values() if (p := r.process()) is not None]
        delivered = {
            (p.host, p.pid): dict(r.delivered)
            for r in self._recent.values()
            if (p := r.who) is not None and r.delivered
        }
        silent_s = None if self._written_s is None else max(0.0, time.time() - self._written_s)
        # The launcher may be on another machine, or be gone while training goes on and writes.
        writes = silent_s is not None and silent_s < _SILENT_S
        return Tail(
            run=Run(
                path=str(self.path),
                command=tuple(launch["command"]) if launch else (),
                kind=launch["kind"] if launch else "run",
                started_at=launch["started_at"] if launch else 0.0,
                processes=tuple(
                    sorted(tell_apart(processes), key=lambda p: (p.rank is None, p.rank or 0, p.start_ns))
                ),
                exit_code=None if self._result is None else self._result.get("exit_code"),
                live=self._result is None and (writes or (launch is not None and launcher_alive(launch))),
                lost=(),
            ),
            delivered=delivered,
            window_s=WINDOW_S,
            silent_s=silent_s,
        )


@dataclass
class GrowingFile:
    """A run file or part, and how far it has been read."""

    path: Path
    ended: bool = False
    """Nothing more is read from it."""
    written_s: float = 0.0
    """Time of the last write, in seconds since 1970."""
    _at: int = 0
    _size: int = 0
    """At the last reading."""
    _version: int = f.VERSION

    def read(self) -> Iterator[Chunk]:
        """The whole chunks added since the last call."""
        try:
            stat = self.path.stat()
            self.written_s = stat.st_mtime
            if stat.st_size != self._size:
                self._size = stat.st_size
                yield from self._read_on()
        except FileNotFoundError:  # just folded
            return
        except OSError as error:
            raise RunFileError(f"cannot read {self.path}: {error.strerror or error}") from error

    def _read_on(self) -> Iterator[Chunk]:
        with self.path.open("rb") as file:
            if self._at == 0:
                head = file.read(f.HEADER.size)
                if len(head) < f.HEADER.size:
                    return
                self._version = check_header(self.path, head)
                self._at = f.HEADER.size
            scan = FileScan(file, self._version, self._at)
            yield from scan
            self._at = scan.at


class RecentEvents:
    """The newest events of one process."""

    def __init__(self, file: GrowingFile) -> None:
        self.file = file
        self.delivered: Counter[int] = Counter()
        """Batches per loader since the process began, without nested ones."""
        self.launch: dict[str, Any] | None = None
        self._stream = ProcessStream()
        self._crews: dict[int, Crew] = {}
        """The newest of each loader: every epoch may have its own."""
        self._who: Process | None = None
        self._packed: dict[int, deque[Packed]] = {}
        """Rows added since the last `process`."""
        self._events: dict[int, deque[Any]] = {}

    @property
    def who(self) -> Process | None:
        """The process without its events; None until it has identified itself."""
        if self._who is None:
            who = self._stream.process()
            self._who = None if who is None else replace(who, crews=tuple(self._crews.values()))
        return self._who

    def add(self, chunk: Chunk) -> None:
        """Add one chunk; kinds that only a later version knows are ignored."""
        kind, row_size, payload = chunk.kind, chunk.row_size, chunk.payload
        if kind == f.META:
            self._add_meta(payload)
        elif kind == f.COUNT:
            counts = rows_of(kind, [(row_size, payload)])
            for row in counts[(counts["kind"] == f.BATCH) & (counts["flags"] & f.NESTED == 0)]:
                self.delivered[int(row["loader"])] += int(row["number"])
        elif kind in _KEPT:
            if kind == f.BATCH:
                rows = f.columns(kind, row_size, "loader", "flags").iter_unpack(payload)
                self.delivered.update(loader for loader, flags in rows if not flags & (f.NESTED | f.THINNED))
            packed = self._packed.setdefault(kind, deque())
            packed.append((row_size, payload))
            # The oldest are dropped unread once the newer ones suffice.
            while len(packed) > _KEPT[kind]:
                packed.popleft()

    def process(self) -> Process | None:
        """The process with its newest events; None until it has identified itself."""
        if self.who is None:
            return None
        self._unpack()
        begins, ends = (tuple(self._events.get(kind, ())) for kind in (f.EPOCH_BEGIN, f.EPOCH_END))
        events: dict[str, Any] = {name: tuple(self._events.get(kind, ())) for kind, name in _FIELDS.items()}
        return replace(self.who, epochs=epochs_of(begins, ends)[0], **events)

    def _add_meta(self, payload: bytes) -> None:
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
            self._stream.add_meta(meta)
        self._who = None

    def _unpack(self) -> None:
        for kind, packed in self._packed.items():
            needed, first = _KEPT[kind], len(packed)
            while needed > 0 and first > 0:
                first -= 1
                needed -= len(packed[first][1]) // packed[first][0]
            newest = list(packed)[first:]
            kept = self._events.setdefault(kind, deque(maxlen=_KEPT[kind]))
            kept.extend(_single(kind, newest) if kind in _FIELDS else unpacked(kind, newest))
        self._packed = {}


def _single(kind: int, packed: list[Packed]) -> list[Any]:
    """The events of a kind, without those that stand for many."""
    events = events_of(kind, packed)[0]
    if kind == f.BATCH:
        return [batch for batch in events if batch.thinned is None]
    return [work for work in events if work.weight] if kind == f.WORK else events


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it exists, but belongs to another user
    return True


def newest_running(folder: Path) -> Path | None:
    """The run in a folder that started last, of those being recorded now."""
    running = []
    for parts in folder.glob(f"*{f.SUFFIX}{f.PARTS_SUFFIX}"):
        path = run_of_parts(parts)
        launch = launch_of(path)
        if launch is not None and launcher_alive(launch):
            running.append((launch["started_at"], path))
    return max(running)[1] if running else None
