"""The counts of ``native/io_shim.cpp`` → `RecordedReads` in the run.

Each process writes one file, ``PID-TIME.io``: its table as it lies in memory (``native/io_table.h``).

    header     "UNSTIO01", seven u32: process, entry size, entries, text size,
               where the entries begin, where the text begins, whether it is Python
    entries    u64 hash, u32 path at (in the text), u32 path size, then 12 × u64: the counts
    text       the paths, one behind the other

A process that was killed may have been writing: counts are then a moment old, and nothing is misplaced.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from unstarve.model.file_reads import FileReads, KindReads, ProcessReads, RecordedReads
from unstarve.record import format as f
from unstarve.record.file_kinds import kinds_of
from unstarve.record.run_file import parts_folder
from unstarve.record.writer import Writer

COUNTS = "*.io"
_MAGIC = b"UNSTIO01"
_HEADER = struct.Struct("<8s7I")
_ENTRY = struct.Struct("<QII12Q")
_MOST_FILES = 300
_MOST_PROCESSES = 5000
NOTHING_COUNTED = (
    "no file read was counted: the command reads no data files, or its programs cannot load a library "
    "(static or privileged ones)"
)


class Counted(NamedTuple):
    """One file, as one process used it. The first entry of a table has no path: it is for all other files."""

    path: str
    opens: int
    open_ns: int
    reads: int
    bytes: int
    read_ns: int
    slow_reads: int
    slow_ns: int
    longest_ns: int
    jumps: int
    maps: int
    mapped_bytes: int

    @property
    def files(self) -> int:
        return self.opens if self.path.endswith("/") or not self.path else 1


def keep_reads(run: Path, why_not: str | None = None) -> None:
    """Add what the processes of the run have counted to it, or say why nothing could be counted.

    Call it before the parts are folded into the run file.
    """
    parts = parts_folder(run)
    recorded = RecordedReads(why_not) if why_not is not None else _recorded(parts)
    _write(parts, "io", dataclasses.asdict(recorded))


def keep_refusal(run: Path, why_not: str) -> None:
    """Note in the run why the processor's counters were not read; before the parts are folded, too."""
    _write(parts_folder(run), "perf", {"why_not": why_not})


def _write(parts: Path, meta: str, fields: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the command has removed the folder, as the end of the run will say
        writer = Writer(parts / f"{meta}{f.PART_SUFFIX}")
        writer.meta(meta, **fields)
        writer.close()


def read_counts(data: bytes) -> tuple[int, bool, list[Counted]]:
    """The process, whether it is Python, and its files. Raises ValueError for anything but a table."""
    try:
        magic, process, entry_size, entries, text_size, entries_at, text_at, python = _HEADER.unpack_from(
            data
        )
    except struct.error:
        raise ValueError("cut off") from None
    if magic != _MAGIC or entry_size != _ENTRY.size or entries_at + entries * entry_size > len(data):
        raise ValueError("not a table of counts")
    text = data[text_at : text_at + text_size]
    rows = _ENTRY.iter_unpack(data[entries_at : entries_at + entries * entry_size])
    counted = [Counted(os.fsdecode(text[at : at + size]), *counts[:11]) for _, at, size, *counts in rows]
    return (
        process,
        bool(python),
        [one for one in counted if one.reads or one.maps],
    )  # not what was written only


def _recorded(parts: Path) -> RecordedReads:
    by_process: dict[int, list[Counted]] = {}
    programs: dict[int, list[Counted]] = {}
    for path in sorted(parts.glob(COUNTS)):
        try:
            process, is_python, counted = read_counts(path.read_bytes())
        except (OSError, ValueError):
            continue  # killed at its first write
        if counted:  # one process may leave several tables: exec makes it another program
            (by_process if is_python else programs).setdefault(process, []).extend(counted)
    # Shells and compilers read files, too. They are of interest only where Python reads none.
    by_process = by_process or programs
    by_path: dict[str, list[Counted]] = defaultdict(list)
    for counted in by_process.values():
        for one in counted:
            by_path[one.path].append(one)
    if not by_path:
        return RecordedReads(NOTHING_COUNTED)
    kinds = kinds_of({path: any(one.maps for one in used) for path, used in by_path.items()})
    files = [_file(path, kinds[path], used) for path, used in by_path.items()]
    return RecordedReads(
        files=tuple(sorted(files, key=lambda one: (-one.bytes, -one.seconds))[:_MOST_FILES]),
        kinds=tuple(_by_kind(files)),
        processes=tuple(
            sorted(
                (_process(pid, counted) for pid, counted in by_process.items()), key=lambda one: -one.bytes
            )[:_MOST_PROCESSES]
        ),
    )


def _file(path: str, kind: str, used: list[Counted]) -> FileReads:
    return FileReads(
        path=path or "other files",
        kind=kind,
        file_bytes=_size(path),
        processes=len(used),
        opens=sum(one.opens for one in used),
        open_s=sum(one.open_ns for one in used) / 1e9,
        reads=sum(one.reads for one in used),
        bytes=sum(one.bytes for one in used),
        seconds=sum(one.read_ns for one in used) / 1e9,
        slow_reads=sum(one.slow_reads for one in used),
        slow_s=sum(one.slow_ns for one in used) / 1e9,
        longest_s=max(one.longest_ns for one in used) / 1e9,
        jumps=sum(one.jumps for one in used),
        mapped_bytes=sum(one.mapped_bytes for one in used),
    )


def _size(path: str) -> int | None:
    if not path or path.endswith("/"):
        return None
    try:
        return Path(path).stat().st_size
    except (OSError, ValueError):
        return None


def _by_kind(files: Iterable[FileReads]) -> Iterator[KindReads]:
    grouped: dict[str, list[FileReads]] = defaultdict(list)
    for one in files:
        grouped[one.kind].append(one)
    for kind, members in sorted(grouped.items(), key=lambda group: -sum(one.bytes for one in group[1])):
        yield KindReads(
            kind=kind,
            files=sum(1 if one.file_bytes is not None else one.opens for one in members),
            opens=sum(one.opens for one in members),
            reads=sum(one.reads for one in members),
            bytes=sum(one.bytes for one in members),
            seconds=sum(one.seconds for one in members),
            jumps=sum(one.jumps for one in members),
            mapped_bytes=sum(one.mapped_bytes for one in members),
        )


def _process(pid: int, counted: list[Counted]) -> ProcessReads:
    return ProcessReads(
        process=pid,
        files=sum(one.files for one in counted),
        opens=sum(one.opens for one in counted),
        open_s=sum(one.open_ns for one in counted) / 1e9,
        reads=sum(one.reads for one in counted),
        bytes=sum(one.bytes for one in counted),
        seconds=sum(one.read_ns for one in counted) / 1e9,
        slow_reads=sum(one.slow_reads for one in counted),
        slow_s=sum(one.slow_ns for one in counted) / 1e9,
        mapped_bytes=sum(one.mapped_bytes for one in counted),
    )
