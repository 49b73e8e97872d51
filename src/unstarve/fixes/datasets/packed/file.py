"""A packed file held open: its index, its tables and its bytes."""

from __future__ import annotations

import functools
import mmap
import os
import sys
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstarve.errors import DataFileError
from unstarve.fixes.datasets.packed.format import CHECKSUM, NAME_END, RECORD
from unstarve.fixes.datasets.packed.index import Table, check_records, check_table, read_exactly, read_index
from unstarve.fixes.io.regular_files import open_regular

Memory = NDArray[np.uint8]

# Without it, the kernel refuses to map a file larger than memory. Newer Pythons have a name for it.
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


class PackedFile:
    """A packed file, open. DataFileError says what is wrong with it.

    It is read into memory of our own, except by who asks for `memory`: touching a map of a file that somebody
    has cut short ends the process. The map is private: what is written into it never reaches the file.
    """

    def __init__(self, path: str) -> None:
        if sys.byteorder != "little":
            raise DataFileError(f"{path} cannot be read here: packed datasets need a little-endian machine")
        self.path = path
        self.fd = open_regular(path)
        weakref.finalize(self, os.close, self.fd).atexit = False
        self.index = read_index(self.fd, path)
        self.size_bytes = os.fstat(self.fd).st_size
        self.records: NDArray[Any] = np.empty(0, RECORD)
        if self.index.records is not None:
            self.records = self._table(self.index.records, RECORD)
            check_records(self.records, self.index, path)
        self.record_samples: NDArray[np.int64] = self.records["sample"].astype(np.int64)

    def memory(self, offset: int, size_bytes: int) -> Memory:
        """A part of the file's map, read when it is touched. A file that becomes shorter is a SIGBUS."""
        return np.frombuffer(self._map[0], np.uint8, size_bytes, offset)

    @property
    def is_writable(self) -> bool:
        """Whether one may write to the map, privately."""
        return self._map[1]

    @functools.cached_property
    def _map(self) -> tuple[mmap.mmap, bool]:
        return _mapped(self.fd)

    def expect(self, offset: int, size_bytes: int) -> None:
        """Have a part of the file read into the page cache in one go, before it is touched page by page."""
        if size_bytes and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self.fd, offset, size_bytes, os.POSIX_FADV_WILLNEED)

    @functools.cached_property
    def checksums(self) -> NDArray[np.uint32]:
        """Of each sample."""
        return self._table(self.index.checksums, CHECKSUM)

    @functools.cached_property
    def direct_fd(self) -> int | None:
        """A descriptor that reads past the page cache; None where the file system has none."""
        flag = getattr(os, "O_DIRECT", None)
        if flag is None:
            return None
        try:
            fd = open_regular(self.path, flag)
        except (OSError, DataFileError):
            return None
        if not os.path.sameopenfile(fd, self.fd):  # the name is another file's by now
            os.close(fd)
            return None
        weakref.finalize(self, os.close, fd).atexit = False
        return fd

    def name(self, sample: int) -> str | None:
        """What the sample was called when it was packed; None where names were not kept."""
        if self._name_ends is None:
            return None
        ends, text = self._name_ends
        start = int(ends[sample - 1]) if sample else 0
        try:
            return text[start : int(ends[sample])].tobytes().decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise DataFileError(f"{self.path} is damaged: its names make no sense; pack it again") from error

    @functools.cached_property
    def _name_ends(self) -> tuple[NDArray[np.uint64], Memory] | None:
        if self.index.name_ends is None or self.index.names is None:
            return None
        text: Memory = self._table(self.index.names, np.dtype(np.uint8))
        return self._table(self.index.name_ends, NAME_END), text

    def where(self, sample: int) -> str:
        """The sample in words for an error: the file, its number and its name."""
        try:
            name = self.name(sample)
        except DataFileError:  # the names are damaged too
            name = None
        return f"{self.path}: sample {sample}" + (f" ({name})" if name is not None else "")

    def check_size(self) -> None:
        """DataFileError where the file has become shorter: touching the map would end the process."""
        if os.fstat(self.fd).st_size < self.size_bytes:
            raise DataFileError(f"{self.path} has become shorter since it was opened; is it being written?")

    def _table(self, table: Table, dtype: np.dtype[Any]) -> NDArray[Any]:
        self.expect(table.offset, table.size_bytes)
        content = np.frombuffer(read_exactly(self.fd, table.offset, table.size_bytes, self.path), np.uint8)
        check_table(content, table, self.path)
        return content.view(dtype)


def _mapped(fd: int) -> tuple[mmap.mmap, bool]:
    """The file in memory, and whether one may write to the private copy."""
    flags, protection = mmap.MAP_PRIVATE | _NO_RESERVE, mmap.PROT_READ | mmap.PROT_WRITE
    try:
        whole = mmap.mmap(fd, 0, flags=flags, prot=protection)
    except OSError:  # where memory may not be promised twice
        return mmap.mmap(fd, 0, access=mmap.ACCESS_READ), False
    return whole, True
