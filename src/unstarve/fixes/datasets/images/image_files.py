"""Read the files of a batch of images.

Native code reads them into one piece of memory in a single call. A call of Python for each file would give up
the GIL four times, and wait for training to give it back as often.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from unstarve.errors import DataFileError, ImageError
from unstarve.fixes.datasets.images.pillow_decoder import MAX_PIXELS, NO_MEMORY
from unstarve.fixes.io import reading
from unstarve.fixes.io.reading import Names
from unstarve.fixes.io.regular_files import open_regular
from unstarve.fixes.memory.buffers import Recycled
from unstarve.fixes.samples.random_streams import threads_here
from unstarve.native import native

ENCODED = (bytes, memoryview)
Image: TypeAlias = bytes | memoryview | torch.Tensor | ImageError
"""The content of a file, or pixels (uint8 [h, w, 3]), or the error that prevented both."""

MAX_FILE_BYTES = 16 * MAX_PIXELS
"""The largest image that is decoded, at four 32-bit numbers per pixel."""

_READERS = 16
"""Threads that wait for storage, which serves several reads in the time of one."""
_WORTH_A_CALL = 4
"""Files from which on one native call is faster."""
_FIRST = 16
"""Files after which it is known whether the others are in memory."""
_MOST_BYTES = 1 << 30
"""Larger batches are read file by file: a copy of each is enough."""

_memory = Recycled(4)


def read_images(names: Names, starts: NDArray[np.int64]) -> list[Image]:
    """Return the content of the files whose names start there.

    Raises OSError, which names the file, for one that cannot be read.
    """
    sizes = np.zeros(len(starts), np.int64)
    if len(starts) >= _WORTH_A_CALL and (compiled := native()) is not None:
        compiled.file_sizes(names.block, np.ascontiguousarray(starts), sizes)
    lengths = np.where(sizes > MAX_FILE_BYTES, 0, sizes).clip(0)
    total = int(lengths.sum())

    def read_one(at: int) -> Image:
        try:
            return read_bytes(names.at(int(starts[at])))
        except ImageError as error:
            return error

    if not 0 < total <= _MOST_BYTES:
        return get_all(read_one, range(len(starts)), lambda at: False)
    memory = _memory((1 << (total - 1).bit_length(),), torch.uint8)  # few sizes, to be used again
    ends = lengths.cumsum()
    unread = _read_into(memory, names, starts, lengths, ends - lengths)
    content = memory.numpy().data
    return [
        read_one(at) if at in unread else content[end - length : end]
        for at, (length, end) in enumerate(zip(lengths.tolist(), ends.tolist(), strict=True))
    ]


def _read_into(
    memory: torch.Tensor,
    names: Names,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    places: NDArray[np.int64],
) -> set[int]:
    """Read files of these lengths to these places; return those that need another look."""
    unread = set(np.flatnonzero(lengths == 0).tolist())
    plan = reading.blank_plan(len(starts))
    plan[:, reading.PATH] = starts
    plan[:, reading.LENGTH] = plan[:, reading.SIZE] = lengths
    plan[:, reading.TO] = places
    rows = np.flatnonzero(lengths)
    blocks = _blocks_read()
    for some in (rows[:_FIRST], rows[_FIRST:]):
        many = _blocks_read() > blocks and threads_here() > 1
        read = reading.read_plan(plan[some], names, [memory], threads=_READERS if many else 1)
        unread |= {int(some[failure.row]) for failure in read.failures}
    return unread


def get_all(
    get: Callable[[int], Image], positions: Sequence[int], slow: Callable[[int], bool]
) -> list[Image]:
    """Return `get` of each position: one by one as long as the bytes are in memory, otherwise on threads.

    `slow` says that a position takes long in any case. A process that has one thread does all in turn.
    """
    alone = threads_here() == 1
    got: list[Image] = []
    blocks = _blocks_read()
    for at, position in enumerate(positions):
        if not alone and (_blocks_read() > blocks or slow(position)):
            with ThreadPoolExecutor(_READERS) as pool:
                return [*got, *pool.map(get, positions[at:])]
        got.append(get(position))
    return got


def _blocks_read() -> int:
    """Blocks that this thread has read from storage so far; 0 where that is not counted per thread."""
    whom: int | None = getattr(resource, "RUSAGE_THREAD", None)
    return 0 if whom is None else resource.getrusage(whom).ru_inblock


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file.

    Raises OSError, which names the file, and ImageError for a file that is too large or not a regular file.
    """
    try:
        fd = open_regular(path)
    except DataFileError as error:
        raise ImageError("it is not a regular file") from error
    with os.fdopen(fd, "rb", buffering=0) as file:
        size = os.fstat(fd).st_size
        if size > MAX_FILE_BYTES:
            raise ImageError(f"the file has {size} bytes; the limit is {MAX_FILE_BYTES}")
        try:
            return file.readall()
        except MemoryError as error:
            raise ImageError(NO_MEMORY) from error
