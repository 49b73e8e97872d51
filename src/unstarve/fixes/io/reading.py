"""Read byte ranges of many files into memory, many at a time, without the GIL.

    read_into([("a.bin", 0, 4096, 0), ("b.bin", 512, 4096, 4096)], batch)

A caller that reads many batches keeps a *plan* for `read_plan`: an int64 array with one row per read and the
columns named below, so that a batch is `plan[indices]`.

A failed read does not stop the others.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unstarve.errors import DataFileError
from unstarve.fixes.io import python_reader
from unstarve.fixes.io.regular_files import open_error
from unstarve.native import native

if TYPE_CHECKING:
    import torch

# Columns of a plan.
PATH = 0  # where the file's name starts in the table of names; -1: read the descriptor in FD
FD = 1
OFFSET = 2  # in the file, in bytes
LENGTH = 3  # in bytes
OUT = 4  # index of the buffer
TO = 5  # offset in the buffer, in bytes
SIZE = 6  # the size that the file must have, in bytes; -1: any; NOT_LOOKED_INTO
MTIME = 7  # the modification time that the file must have, in ns since 1970; -1: any
COLUMNS = 8

Plan: TypeAlias = NDArray[np.int64]
Out: TypeAlias = "NDArray[Any] | torch.Tensor"

NOT_LOOKED_INTO = -2
"""The size of a file of which it is not known where its tensors are; see `FileTable`."""

OPEN, READ, ENDED, CHANGED, OTHER = range(5)


class Names:
    """Paths in the form that the native reader needs: one block of bytes, and where each name starts."""

    def __init__(self, paths: Iterable[str]) -> None:
        listed = list(paths)
        self.block = os.fsencode("".join(f"{path}\0" for path in listed))
        ends = np.flatnonzero(np.frombuffer(self.block, np.uint8) == 0)
        if len(ends) != len(listed):
            wrong = next(path for path in listed if "\0" in path)
            raise ValueError(f"a path must not contain a zero byte, got {wrong!r}")
        self.starts: NDArray[np.int64] = np.concatenate([[0], ends[:-1] + 1])[: len(listed)]

    def at(self, start: int) -> str:
        """Return the path that starts at this position in the block."""
        return os.fsdecode(self.block[start : self.block.index(b"\0", start)])


@dataclass(frozen=True)
class Failure:
    """A failed read: its row in the plan, the kind of trouble, errno, and the bytes that were read."""

    row: int
    trouble: int
    error: int
    got: int


@dataclass(frozen=True)
class Outcome:
    """The result of reading a plan."""

    failures: list[Failure]
    direct_bytes: int
    """Bytes read past the page cache."""
    direct_refused: bool
    """Direct reads were wanted, but a file system has none: files were read through the page cache."""
    used_uring: bool


def blank_plan(count: int) -> Plan:
    """Return a plan of `count` empty reads, to be filled in column by column."""
    plan = np.zeros((count, COLUMNS), np.int64)
    plan[:, [PATH, FD, SIZE, MTIME]] = -1
    return plan


def read_plan(
    plan: Plan,
    names: Names | None,
    outs: Sequence[Out],
    *,
    direct: bool = False,
    depth: int = 0,
    threads: int = 0,
    uring: bool = True,
) -> Outcome:
    """Read every row of the plan into its buffer, and report failures.

    `outs` are writable, C-contiguous CPU arrays or tensors. `direct` reads past the page cache (O_DIRECT).
    `depth` is the number of direct reads in flight, over all threads that call this; `threads` is the number
    of threads that read; 0 chooses either. A descriptor is read as it was opened. Consecutive rows with the
    same path share one open file. Raises ValueError for a row that points outside its buffer.
    """
    block = b"" if names is None else names.block
    memory = [_memory_of(out) for out in outs]
    reader = native() or python_reader
    rows = np.ascontiguousarray(plan, np.int64)
    failures, *rest = reader.read_files(rows, block, memory, direct, depth, threads, uring)
    return Outcome([Failure(*failure) for failure in failures], *rest)


class FileTable:
    """Files of one structure that are read by their numbers, without a plan. Threads may share it.

    Each file has one of the `rows`: its size (or NOT_LOOKED_INTO), its modification time, then the columns of
    its layout. `tensors` are the columns that hold offsets, and `lengths` the bytes that are there.
    """

    def __init__(
        self,
        names: Names,
        formats: NDArray[np.uint8],
        rows: NDArray[np.int64],
        structure: bytes,
        tensors: NDArray[np.int64],
        lengths: NDArray[np.int64],
    ) -> None:
        reader: Any = native() or python_reader
        self._files = reader.FileTable(names.block, names.starts, formats, rows, structure, tensors, lengths)

    def read(
        self,
        files: NDArray[np.int64],
        outs: Sequence[Out],
        *,
        taken: NDArray[np.int64] | None = None,
        looks: bool = False,
        direct: bool = False,
        depth: int = 0,
        threads: int = 0,
    ) -> Outcome:
        """Read tensor t of file i into row i of `outs[t]`; the rest is as in `read_plan`.

        With `looks`, which only native readers do, files are read through the page cache, and those not
        looked into, or changed since, are looked into and get their rows. Those that are not of the
        structure, or cannot be opened to see, fail with OTHER. `taken` gets the rows of the files.
        """
        memory = [_memory_of(out) for out in outs]
        failures, *rest = self._files.read(files, memory, taken, looks, direct, depth, threads)
        return Outcome([Failure(*failure) for failure in failures], *rest)


def read_into(
    requests: Iterable[tuple[str | int, int, int, int]],
    out: Out,
    *,
    direct: bool = False,
    depth: int = 0,
    threads: int = 0,
) -> Outcome:
    """Read requests, (path or descriptor, file offset, length, offset in `out`), into `out`.

    All offsets and lengths are in bytes. After everything has been read, raises `error_of` the first failure,
    with the other failures as notes.
    """
    listed = list(requests)
    names = Names(source for source, *_ in listed if isinstance(source, str))
    starts = iter(names.starts)
    plan = blank_plan(len(listed))
    for row, (source, offset, length, to) in zip(plan, listed, strict=True):
        row[FD if isinstance(source, int) else PATH] = source if isinstance(source, int) else next(starts)
        row[[OFFSET, LENGTH, TO]] = offset, length, to
    outcome = read_plan(plan, names, [out], direct=direct, depth=depth, threads=threads)
    if outcome.failures:
        raise_first([error_of(f, str(listed[f.row][0]), listed[f.row][2]) for f in outcome.failures])
    return outcome


def error_of(failure: Failure, path: str, length: int) -> Exception:
    """Return the exception for a failed read: the operating system's, or a DataFileError."""
    if failure.trouble == OPEN:
        return open_error(failure.error, path)
    if failure.trouble == READ:
        return OSError(failure.error, os.strerror(failure.error), path)
    if failure.trouble == ENDED:
        return DataFileError(
            f"{path} ends too early, after {failure.got} of {length} bytes: "
            "it is truncated or still being written"
        )
    return DataFileError(
        f"{path} has changed since it was inspected: wait until it is complete, then start again"
    )


def raise_first(errors: Sequence[Exception]) -> NoReturn:
    """Raise the first of the errors, with the others as notes."""
    for other in errors[1:]:
        errors[0].add_note(f"also: {other}")
    raise errors[0]


def _memory_of(out: Any) -> tuple[int, int]:
    """Return the address and the size in bytes of a writable array or tensor."""
    if isinstance(out, np.ndarray):
        if not out.flags.c_contiguous or not out.flags.writeable:
            raise ValueError("out must be C-contiguous and writable")
        return int(out.__array_interface__["data"][0]), out.nbytes
    if not out.is_cpu or not out.is_contiguous():
        raise ValueError("out must be a contiguous tensor on the CPU")
    return out.data_ptr(), out.nbytes
