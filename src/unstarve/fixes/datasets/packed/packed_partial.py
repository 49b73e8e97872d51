"""The folder ``NAME.partial/`` in which a packed file is written: streams and a journal of their sizes.

A stream is a file that only grows. Everything written since the last checkpoint is cut off when the work is
resumed, after a kill as after a full disk. The journal is checked before it is used: a damaged one must not
reach other files.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from unstarve.errors import UsageError
from unstarve.fixes.datasets.packed.packed_codec import Dims, size_of
from unstarve.fixes.datasets.packed.packed_format import (
    CHECKSUM,
    HEADER_BYTES,
    NAME_END,
    RECORD,
    Schema,
    from_json,
    natural,
    to_json,
)
from unstarve.fixes.io.private_files import NotOursError, make_private, open_private, open_private_folder

_JOURNAL = "journal.json"
_FRESH_JOURNAL = "journal.json.new"
_LOCK = "lock"
_BUFFER_BYTES = 1 << 20
_COPY_BYTES = 8 << 20
_HELD: set[Path] = set()
"""Folders this process writes to: the lock keeps out only other processes."""


class AppendedFile:
    """A file that is appended to. Small pieces are buffered; `size` includes them."""

    def __init__(self, path: Path, folder: int, size: int = 0) -> None:
        """Open the file in the folder that is open as `folder`, and cut it to `size`.

        Raises ValueError if it is shorter, OSError if it is not our own file.
        """
        self.path = path
        self.size = size
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        # One of the streams becomes the packed file; the umask decides who may read it.
        self._fd = open_private(path.name, os.O_RDWR, create=True, mode=0o666, folder=folder)
        if os.fstat(self._fd).st_size < size:
            os.close(self._fd)
            raise ValueError(f"{path} is shorter than its journal says")
        os.ftruncate(self._fd, size)
        os.lseek(self._fd, size, os.SEEK_SET)

    def write(self, piece: Any) -> None:
        """Append bytes."""
        if len(piece) >= _BUFFER_BYTES:
            self.flush()
            _write_all(self._fd, piece)
        else:
            self._waiting.append(bytes(piece))
            self._waiting_bytes += len(piece)
            if self._waiting_bytes >= _BUFFER_BYTES:
                self.flush()
        self.size += len(piece)

    def pad(self, alignment: int) -> None:
        """Append zeros up to a multiple of the alignment."""
        self.write(bytes(-self.size % alignment))

    def flush(self) -> None:
        """Write the buffer to the file."""
        if self._waiting:
            _write_all(self._fd, b"".join(self._waiting))
            self._waiting.clear()
            self._waiting_bytes = 0

    def sync(self) -> None:
        """Write everything to storage."""
        self.flush()
        os.fsync(self._fd)

    def append_file(self, other: AppendedFile, start: int) -> None:
        """Append another stream's file from `start` on."""
        other.flush()
        while piece := os.pread(other._fd, _COPY_BYTES, start):
            self.write(piece)
            start += len(piece)

    def content(self) -> bytes:
        """Return everything that was written."""
        self.flush()
        pieces = []
        at = 0
        while piece := os.pread(self._fd, _COPY_BYTES, at):
            pieces.append(piece)
            at += len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        """Close the file; what is buffered is lost."""
        os.close(self._fd)


def _write_all(fd: int, piece: Any) -> None:
    rest = memoryview(piece).cast("B")
    while rest:
        rest = rest[os.write(fd, rest) :]


class Partial:
    """The folder of a packed file that is being written, locked by one process at a time.

    Once known to be ours, it is used through its descriptor: in a shared folder others may rename it.
    """

    def __init__(self, destination: Path, *, resume: bool) -> None:
        """With `resume`, continue from a valid journal if there is one; otherwise start empty.

        Raises UsageError if another process is writing or the folder is not ours.
        """
        self.folder = partial_folder(destination).absolute()
        self.streams: dict[str, AppendedFile] = {}
        self.journal: Journal | None = None
        if self.folder in _HELD:
            raise UsageError(_busy(destination))
        try:
            self._fd = open_private_folder(self.folder)
        except NotOursError as error:
            raise UsageError(_in_the_way(str(error), destination)) from error
        try:
            _check_names(self._fd, self.folder)
            self._lock = _locked(self._fd, destination)
        except BaseException:  # also Ctrl-C: the descriptor is ours
            os.close(self._fd)
            raise
        _HELD.add(self.folder)
        try:
            if resume:
                self._resume()
            if self.journal is None:
                self._clear()
        except BaseException:  # also Ctrl-C: the folder is free again
            self.close()
            raise

    def stream(self, name: str, start: bytes = b"") -> AppendedFile:
        """Return the stream of this name; a new one begins with `start`."""
        if name not in self.streams:
            self.streams[name] = AppendedFile(self.folder / name, self._fd)
            self.streams[name].write(start)
        return self.streams[name]

    def checkpoint(self, journal: Journal) -> None:
        """Write all streams to storage, then the journal with their sizes. It survives a power cut."""
        for stream in self.streams.values():
            stream.sync()
        journal = replace(journal, sizes={name: stream.size for name, stream in self.streams.items()})
        fd = make_private(_FRESH_JOURNAL, folder=self._fd)
        try:
            _write_all(fd, journal.to_bytes())
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(_FRESH_JOURNAL, _JOURNAL, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        with contextlib.suppress(OSError):  # where the file system can
            os.fsync(self._fd)

    def close(self) -> None:
        """Close the folder in the state of the last checkpoint."""
        self._close_streams()
        self._release()

    def remove(self) -> None:
        """Remove the folder and what was written in it."""
        self._close_streams()
        with contextlib.suppress(OSError):  # a foreign file appeared in it: leave it
            self._clear()
            _unlink(_LOCK, self._fd)
            self.folder.rmdir()
        self._release()

    def _resume(self) -> None:
        try:
            self.journal = parse_journal(_content(_JOURNAL, self._fd))
            for name, size in (self.journal.sizes if self.journal is not None else {}).items():
                self.streams[name] = AppendedFile(self.folder / name, self._fd, size)
        except (OSError, ValueError):  # no journal yet, or files are missing
            self._close_streams()
            self.journal = None

    def _clear(self) -> None:
        for name in _names(self._fd):
            if name != _LOCK and _is_known(name):
                _unlink(name, self._fd)

    def _release(self) -> None:
        os.close(self._lock)
        os.close(self._fd)
        _HELD.discard(self.folder)

    def _close_streams(self) -> None:
        for stream in self.streams.values():
            stream.close()
        self.streams.clear()


def partial_folder(destination: Path) -> Path:
    """Return the folder in which a packed file of this name is written."""
    return destination.with_name(f"{destination.name}.partial")


def _names(folder: int) -> dict[str, bool]:
    """Return the names in a folder, and whether each is a folder."""
    with os.scandir(folder) as entries:
        return {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}


def _check_names(folder: int, path: Path) -> None:
    """Raise UsageError if the folder holds anything but our own files, which may be removed."""
    names = _names(folder)
    if (names and _LOCK not in names) or any(names.values()) or not all(map(_is_known, names)):
        raise UsageError(f"{path} is needed for writing but holds other files: move them away")


def _is_known(name: str) -> bool:
    return name in (_LOCK, _JOURNAL, _FRESH_JOURNAL) or is_stream(name)


def _locked(folder: int, destination: Path) -> int:
    """Lock the folder. This kind of lock ends with the process; its workers do not inherit it."""
    try:
        fd = open_private(_LOCK, os.O_RDWR, create=True, folder=folder)
    except NotOursError as error:
        raise UsageError(_in_the_way(f"{partial_folder(destination)}/{error}", destination)) from error
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            os.close(fd)
            raise UsageError(_busy(destination)) from None
        # A file system without locks: nobody else can have one either.
    return fd


def _content(name: str, folder: int) -> bytes:
    with open(open_private(name, os.O_RDONLY, folder=folder), "rb") as file:  # noqa: PTH123 # a descriptor
        return file.read()


def _unlink(name: str, folder: int) -> None:
    """Remove a name from the folder; a link is removed, not its target."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _busy(destination: Path) -> str:
    return f"{destination} is being written by another process: wait for it or stop it"


def _in_the_way(what: str, destination: Path) -> str:
    return f"{destination} cannot be written: {what}; remove it, or choose another name"


RECORDS = "records"
RECORD_TABLE = "record-table"
CHECKSUMS = "checksums"
NAME_ENDS = "name-ends"
NAMES = "names"
MAX_COLUMNS = 64
_STREAM_NAMES = frozenset((RECORDS, RECORD_TABLE, CHECKSUMS, NAME_ENDS, NAMES))
_COLUMN_NAME = re.compile(r"column-\d\d")


def column_stream(number: int) -> str:
    """Return the name of a column's stream."""
    return f"column-{number:02}"


def is_column(name: str) -> bool:
    """Whether a stream of this name holds a column."""
    return _COLUMN_NAME.fullmatch(name) is not None


def is_stream(name: str) -> bool:
    """Whether this is the name of a stream."""
    return name in _STREAM_NAMES or is_column(name)


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """Schema and dims of the samples in columns."""

    schema: Schema
    dims: Dims

    def row_bytes(self) -> list[int]:
        """Bytes of one row of each column."""
        leaves = self.schema.leaves
        return [size_of(leaf, shape) for leaf, shape in zip(leaves, self.dims, strict=True)]


@dataclass(frozen=True, slots=True)
class Journal:
    """The contents of the streams; `sizes` says how many bytes of each count."""

    samples: int = 0
    columns: ColumnLayout | None = None
    schemas: tuple[Schema, ...] = ()
    named: bool | None = None
    about: dict[str, Any] = field(default_factory=dict)
    position: Any = None
    sizes: dict[str, int] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the bytes to write."""
        columns = self.columns
        content = {
            "samples": self.samples,
            "about": self.about,
            "position": self.position,
            "named": self.named,
            "columns": None if columns is None else [to_json(columns.schema), columns.dims],
            "schemas": [to_json(schema) for schema in self.schemas],
            "sizes": self.sizes,
        }
        return json.dumps(content).encode()


def parse_journal(text: bytes) -> Journal | None:
    """Read a journal; None if it is invalid."""
    try:
        journal = _parsed_journal(json.loads(text))
        _check_sizes(journal)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None
    return journal


def _parsed_journal(content: Any) -> Journal:
    named, about, schemas = content["named"], content["about"], content["schemas"]
    if named not in (None, True, False) or not isinstance(about, dict) or not isinstance(schemas, list):
        raise ValueError("a field has the wrong type")
    return Journal(
        samples=natural(content["samples"]),
        columns=_parsed_columns(content["columns"]),
        schemas=tuple(from_json(schema) for schema in schemas),
        named=named,
        about=about,
        position=content["position"],
        sizes={name: natural(size) for name, size in content["sizes"].items()},
    )


def _parsed_columns(content: Any) -> ColumnLayout | None:
    if content is None:
        return None
    schema = from_json(content[0])
    dims = tuple(tuple(natural(size) for size in shape) for shape in content[1])
    leaves = schema.leaves
    shapes = zip(leaves, dims, strict=True)
    if len(leaves) > MAX_COLUMNS or not all(
        leaf.has_fixed_size and len(shape) == leaf.ndim for leaf, shape in shapes
    ):
        raise ValueError("the columns do not fit their schema")
    return ColumnLayout(schema, dims)


def _check_sizes(journal: Journal) -> None:
    """Raise ValueError unless all streams are known and end after the same sample."""
    sizes = dict(journal.sizes)
    records, rest = divmod(sizes.pop(RECORD_TABLE, 0), RECORD.itemsize)
    has_records = sizes.pop(RECORDS, 0) >= HEADER_BYTES
    rows = journal.samples - records
    sound = (
        rest == 0 and rows >= 0 and has_records == (records > 0) and (rows == 0) == (journal.columns is None)
    )
    sound &= sizes.pop(CHECKSUMS, 0) == journal.samples * CHECKSUM.itemsize
    sound &= sizes.pop(NAME_ENDS, 0) == (journal.samples * NAME_END.itemsize if journal.named else 0)
    sound &= bool(journal.named) or NAMES not in sizes
    sizes.pop(NAMES, None)
    for number, row_bytes in enumerate(journal.columns.row_bytes() if journal.columns is not None else ()):
        sound &= sizes.pop(column_stream(number), 0) == (HEADER_BYTES + rows * row_bytes if row_bytes else 0)
    if sizes or not sound:
        raise ValueError("the streams do not fit together")
