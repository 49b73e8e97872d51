"""How the processes of a run read their files, as `unstarve run --io` counts it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileReads:
    """One file over all processes. A path that ends with a slash is a folder of files that are not listed."""

    path: str
    kind: str
    """``JPEG``, ``tar``, ``HDF5`` …, by its first bytes; empty when unknown."""
    file_bytes: int | None
    """Size of the file after the run; None for a folder and for a file that is gone."""
    processes: int
    opens: int
    open_s: float
    reads: int
    bytes: int
    """Handed out by read calls. Reading a memory-mapped file needs no call, so it is not counted."""
    seconds: float
    """In read calls."""
    slow_reads: int
    """Reads that took longer than the page cache needs."""
    slow_s: float
    longest_s: float
    jumps: int
    """Reads that did not begin where the read before had ended."""
    mapped_bytes: int
    """Mapped into memory, over all mappings."""


@dataclass(frozen=True, slots=True)
class KindReads:
    """All files of one kind."""

    kind: str
    files: int
    """Of a folder whose files are not listed: its opens."""
    opens: int
    reads: int
    bytes: int
    seconds: float
    jumps: int
    mapped_bytes: int


@dataclass(frozen=True, slots=True)
class ProcessReads:
    """All files of one process."""

    process: int
    files: int
    """As in `KindReads`."""
    opens: int
    open_s: float
    reads: int
    bytes: int
    seconds: float
    slow_reads: int
    slow_s: float
    mapped_bytes: int
    role: str = ""
    """``training``, ``worker``, or empty for another program; known once the run was read."""


@dataclass(frozen=True, slots=True)
class RecordedReads:
    """What was counted in a run."""

    why_not: str | None = None
    """Why nothing was counted, in one sentence; None when something was."""
    files: tuple[FileReads, ...] = ()
    """The largest by bytes read, then by time."""
    kinds: tuple[KindReads, ...] = ()
    processes: tuple[ProcessReads, ...] = ()
    """The largest by bytes read."""


@dataclass(frozen=True, slots=True)
class ReadPattern:
    """A way of reading that costs time."""

    id: str
    """``small_files``, ``reopened_file``, ``cold_reads``, ``random_reads`` or ``unused_bytes``."""
    finding: str
    """What was measured, in one sentence."""
    remedy: str
    """What to do about it, in one sentence."""


@dataclass(frozen=True, slots=True)
class ReadSummary:
    """What the counts mean for loading: the workers' reads, or without workers the training processes'."""

    why_not: str | None
    opens: int
    reads: int
    read_bytes: int
    used_bytes: int | None
    """Bytes of the batches that were delivered to training; None when unknown."""
    read_per_used: float | None
    """`read_bytes` ÷ `used_bytes`; None when either is unknown, as with memory-mapped files."""
    storage_bytes: int | None
    """Part of the reading that storage had to answer, by the kernel's count; None when unknown."""
    patterns: tuple[ReadPattern, ...]
    kinds: tuple[KindReads, ...]
    files: tuple[FileReads, ...]
    processes: tuple[ProcessReads, ...]
