"""How loading read its files: patterns as sentences, then the files and the processes as tables."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from unstarve.model.file_reads import FileReads, ReadSummary
from unstarve.present.terminal.path_text import PathText
from unstarve.present.terminal.profile_tables import titled_table
from unstarve.words import duration, mean_count, size, times

_MOST_ROWS = 5


def reading_tables(reads: ReadSummary | None) -> Group | None:
    """Everything about reading; None when it was not counted."""
    if reads is None or reads.why_not is not None:
        return None
    return Group(*_parts(reads))


def _parts(reads: ReadSummary) -> Iterator[RenderableType]:
    yield Text("\nfile reading", "bold")
    yield PathText(Text(_total(reads)))
    for one in reads.patterns:
        yield PathText(Text(f"· {one.finding}"))
        yield Padding(Text(one.remedy), (0, 0, 0, 2))
    yield from titled_table(
        "files read",
        ("file", "kind", "opens", "reads", "size", "time", "longest"),
        [
            (
                one.path,
                one.kind or "–",
                mean_count(one.opens),
                mean_count(one.reads),
                _amount(one),
                duration(one.seconds + one.open_s),
                duration(one.longest_s),
            )
            for one in reads.files[:_MOST_ROWS]
        ],
    )
    yield from titled_table(
        "kinds of files",
        ("kind", "files", "opens", "reads", "size", "time"),
        [
            (
                one.kind or "unknown",
                mean_count(one.files),
                mean_count(one.opens),
                mean_count(one.reads),
                size(one.bytes),
                duration(one.seconds),
            )
            for one in reads.kinds[:_MOST_ROWS]
            if len(reads.files) > _MOST_ROWS
        ],
    )
    yield from titled_table(
        "read by",
        ("process", "files", "opens", "reads", "size", "time"),
        [
            (
                f"{one.role or 'program'} {one.process}",
                mean_count(one.files),
                mean_count(one.opens),
                mean_count(one.reads),
                size(one.bytes),
                duration(one.seconds + one.open_s),
            )
            for one in reads.processes[:_MOST_ROWS]
        ],
    )


def _total(reads: ReadSummary) -> str:
    calls = f"{_many(reads.reads, 'read')} and {_many(reads.opens, 'open')}"
    read = f"Loading read {size(reads.read_bytes)} in {calls}."
    if reads.used_bytes is None:
        return read
    used = f" Its batches held {size(reads.used_bytes)}"
    if reads.read_per_used is None:
        return f"{read}{used}; reads of memory-mapped files are not counted."
    return f"{read}{used}: read ÷ used is {times(reads.read_per_used, 2)}."


def _many(count: int, noun: str) -> str:
    return f"{mean_count(count)} {noun}{'s' * (count != 1)}"


def _amount(one: FileReads) -> str:
    return f"{size(one.mapped_bytes)} mapped" if one.mapped_bytes > one.bytes else size(one.bytes)
