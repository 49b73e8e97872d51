"""An nsys SQLite export → `Capture`. Empty tables are left out, and versions differ in their columns."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from unstarve.errors import ProfileError
from unstarve.importers.capture import COPY_KINDS, MEMORIES, Capture
from unstarve.importers.trace_events import Progress

MAGIC = b"SQLite format 3\x00"
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
_FILLS = "CUPTI_ACTIVITY_KIND_MEMSET"
_GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_EXPORTS = ("META_DATA_EXPORT", "EXPORT_META_DATA")
_COPY_KINDS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}
_MEMORIES = {0: "pageable", 1: "pinned"}
_LOADER = re.compile(
    r"(enumerate\(DataLoader\)#\w+\.__next__|unstarve\.data|data(loading)?|dataloader)", re.I
)
_STEP = re.compile(r"(ProfilerStep#\d+|unstarve\.step|step(_| )?\d*|iteration(_| )?\d*)", re.I)
_OPERATOR = re.compile(r", (op_id|seq) = .*")
"""What ``--pytorch=autograd-nvtx`` puts after the name of an operator."""
_PROCESS = "(({0} / 16777216) % 16777216)"
_FEWEST_STEPS = 3
_SHORTEST_STEP_NS = 50_000
"""After the wait. What ends sooner is the question at the end of an epoch, which gets no batch."""
_MOST_BYTES = 1 << 50
_FILE_CALLS = frozenset({
    "open", "open64", "openat", "openat64", "fopen", "fopen64", "read", "readv", "pread", "pread64", "preadv",
    "fread", "mmap", "mmap64", "stat", "stat64", "lseek", "close", "fclose", "posix_fadvise", "readahead",
})  # fmt: skip
"""Of the hundred that nsys traces. Most others wait for threads and pipes, whether there is work or not."""


def read_nsys_export(path: Path, progress: Progress) -> Capture:
    """Read what ``nsys export --type sqlite`` wrote. Raises ProfileError."""
    try:
        with closing(sqlite3.connect(f"file:{path.absolute().as_posix()}?mode=ro", uri=True)) as database:
            database.text_factory = lambda raw: raw.decode("utf-8", "replace")
            database.execute("PRAGMA trusted_schema=OFF")
            return _Export(database, path).capture(progress)
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:  # even its messages may be damaged
        reason = error if isinstance(error, sqlite3.Error) else "it is damaged"
        raise ProfileError(f"{path} cannot be read as an SQLite database: {reason}") from error


class _Export:
    """The tables of one export."""

    def __init__(self, database: sqlite3.Connection, path: Path) -> None:
        self._database = database
        self._path = path
        # A view could compute for ever, and a virtual table could read other files.
        tables = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
        self._columns = {
            name: {row[1] for row in database.execute(f"PRAGMA table_info({_quoted(name)})")}
            for name, sql in tables
            if isinstance(name, str) and not re.match(r"\s*CREATE\s+VIRTUAL", str(sql), re.I)
        }
        self._texts = dict(self._rows("StringIds", ("id", "value")))

    def capture(self, progress: Progress) -> Capture:
        """Everything that the export holds. Raises ProfileError if it is not one of nsys."""
        if "StringIds" not in self._columns:
            raise ProfileError(f"{self._path} is an SQLite database, but not an nsys export: no StringIds")
        capture = Capture("nsys", self._tool())
        parts = (self._device_work, self._runtime, self._ranges, self._calls, self._files)
        for done, part in enumerate(parts, start=1):
            part(capture)
            progress(done * self._path.stat().st_size // len(parts))
        return capture

    def _rows(self, table: str, wanted: Sequence[str], **optional: int) -> Iterator[tuple[Any, ...]]:
        """Rows of a table that has the wanted columns; `optional` has the value of a column that it lacks."""
        there = self._columns.get(table, set())
        if not there.issuperset(wanted):
            return
        columns = [_quoted(name) for name in wanted]
        columns += [_quoted(name) if name in there else str(value) for name, value in optional.items()]
        yield from self._database.execute(f"SELECT {', '.join(columns)} FROM {_quoted(table)}")

    def _device_work(self, to: Capture) -> None:
        timed = ("start", "end", "deviceId")
        call = {"globalPid": -1, "correlationId": -1}
        for begin, end, device, name, *by in self._rows(_KERNELS, timed, shortName=-1, **call):
            if _whole(begin, end, device):
                launch = _call(*by)
                to.kernels.add(begin, end, device, to.names.number(self._text(name)), launch, launch)
        for begin, end, device, *by in self._rows(_GRAPHS, timed, **call):
            if _whole(begin, end, device):
                launch = _call(*by)
                to.kernels.add(begin, end, device, to.names.number("CUDA graph"), launch, launch)
        for begin, end, device, *by in self._rows(_FILLS, timed, **call):
            if _whole(begin, end, device):
                to.fills.add(begin, end, device, _call(*by))
        copies = self._rows(_COPIES, (*timed, "copyKind"), bytes=0, srcKind=-1, dstKind=-1, **call)
        for begin, end, device, code, size, source, target, *by in copies:
            if _whole(begin, end, device):
                kind = _COPY_KINDS.get(code, "DtoD")
                memory = (
                    _MEMORIES.get(target if kind == "DtoH" else source, "") if kind[0] != kind[-1] else ""
                )
                nbytes = size if _whole(size) and size < _MOST_BYTES else 0
                numbers = COPY_KINDS.index(kind), MEMORIES.index(memory), nbytes, _call(*by), _call(*by)
                to.copies.add(begin, end, device, *numbers)

    def _runtime(self, to: Capture) -> None:
        rows = self._rows(_RUNTIME, ("start", "end", "globalTid", "nameId"), correlationId=-1)
        for begin, end, thread, name, call in rows:
            if _whole(begin, end, thread):
                launch = _call(thread, call)
                to.host.add(begin, end, thread, to.names.number(self._text(name)), launch, 0, -1, -1)
                if launch >= 0:
                    to.launches.add(begin, end, launch)

    def _ranges(self, to: Capture) -> None:
        """NVTX ranges: waits for a loader, steps, and what the host was doing."""
        rows = self._rows("NVTX_EVENTS", ("start", "end", "globalTid"), text=0, textId=-1)
        steps: list[tuple[int, int, int]] = []
        for begin, end, thread, text, number in rows:
            if not _whole(begin, end, thread):
                continue
            said = text if isinstance(text, str) else self._text(number)
            operator = _OPERATOR.sub("", said)
            name = to.names.number(operator)
            if _LOADER.fullmatch(operator):
                to.waits.add(begin, end, thread, name)
            elif _STEP.fullmatch(operator):
                steps.append((begin, end, thread))
            to.host.add(begin, end, thread, name, -1, int(operator != said), -1, -1)
        ended = np.sort(to.waits.end)
        if len(steps) >= _FEWEST_STEPS:
            for step in steps:
                last = int(np.searchsorted(ended, step[1], side="right")) - 1
                if last < 0 or not step[0] <= ended[last] >= step[1] - _SHORTEST_STEP_NS:
                    to.steps.add(*step)

    def _calls(self, to: Capture) -> None:
        """Calls that read files, by process: a forked worker is a process, too."""
        if not self._columns.get("OSRT_API", set()).issuperset(("start", "end", "globalTid", "nameId")):
            return
        process = _PROCESS.format("globalTid")
        asked = f"SELECT {process}, nameId, COUNT(*), SUM(end - start) FROM OSRT_API GROUP BY 1, 2"
        for pid, name, count, spent in self._database.execute(asked):
            if _whole(pid, count, spent) and self._text(name) in _FILE_CALLS:
                to.calls[pid, to.names.number(self._text(name))] = [count, spent]
        bounds = self._database.execute("SELECT MIN(start), MAX(end) FROM OSRT_API").fetchone()
        if _whole(*bounds):
            to.bounds = bounds

    def _files(self, to: Capture) -> None:
        """Files, by process; only exports of 2025 and later have them."""
        paths: dict[Any, tuple[int, str]] = {}
        opened = self._rows("OSRT_FILE_ACCESS_DESCRIPTORS", ("fileAccessId", "processId", "filePath"))
        for access, pid, path in opened:
            if _whole(access, pid):
                said = path if isinstance(path, str) else self._text(path)
                paths[access] = (pid, said)
                to.files.setdefault((pid, said), [0, 0, 0, 0])[0] += 1
        events = self._rows(
            "OSRT_FILE_ACCESS_EVENTS", ("fileAccessId", "startedAt", "endedAt"), bytesProcessed=0
        )
        for access, begin, end, size in events:
            if access in paths and _whole(begin, end):
                use = to.files[paths[access]]
                use[1] += 1
                use[2] += size if _whole(size) else 0
                use[3] += max(end - begin, 0)

    def _text(self, number: Any) -> str:
        said = self._texts.get(number)
        return said if isinstance(said, str) else "?"

    def _tool(self) -> str:
        for table in _EXPORTS:
            said = {str(name): str(value) for name, value in self._rows(table, ("name", "value"))}
            for name in ("EXPORT_PRODUCT_VERSION", "EXPORT_TOOL_VERSION", "EXPORT_SCHEMA_VERSION"):
                if name in said:
                    return f"nsys {said[name]}"[:80] if "SCHEMA" not in name else f"schema {said[name]}"[:80]
        return ""


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _call(process: Any, correlation: Any) -> int:
    """The number of a call of the CUDA runtime, which counts in each process; −1 when there is none.

    `process` is a globalPid or a globalTid.
    """
    if not _whole(process, correlation) or correlation >= 1 << 32:
        return -1
    return int((process >> 24) % (1 << 24) << 32 | correlation)


def _whole(*values: Any) -> bool:
    """Whether all are whole numbers that can be times, sizes or identifiers."""
    return all(type(value) is int and 0 <= value < 1 << 61 for value in values)
