"""Shared memory that a worker process lends to the training process, and uses again when it is released.

torch's workers allocate new shared memory for every batch. The system zeroes it and maps it page by page,
which takes ten times as long as copying the batch. To use memory again, a worker must know when no process
holds the batch any more.

The kernel knows. Each time a block is lent, it is sent as a new open file with a shared lock. The receiver
keeps that file open, by a descriptor and a mapping, as long as the tensor's storage lives; so do processes
forked in the meantime, and processes it is sent on to. When the last of them closes it, the lock is released,
and the worker can take an exclusive lock.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

_sharing_strategy: Any = torch.multiprocessing.get_sharing_strategy
_of_shared_file: Any = getattr(torch.UntypedStorage, "_new_shared_fd_cpu", None)
"""How torch's own queues receive tensors."""
_MIN_LENT_BYTES = 256 << 10
"""Smaller batches are allocated as torch does it."""


class Lent(NamedTuple):
    """Two tensors over the memory of one batch."""

    inside: torch.Tensor
    """Where this process writes; its pages are mapped already. Do not keep it."""
    batch: torch.Tensor
    """The tensor to send, in shared memory that torch recognizes."""


class Lender:
    """Lends shared memory; keeps at most `most` blocks, lent or not.

    For worker processes: a block is free when its batch was sent and every receiver has dropped it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._start()

    def __call__(self, shape: Sequence[int], dtype: torch.dtype) -> Lent | None:
        """Return uninitialized, contiguous memory; None if torch should allocate the batch itself."""
        size_bytes = math.prod(shape) * dtype.itemsize
        if (
            _of_shared_file is None
            or size_bytes < _MIN_LENT_BYTES
            or _sharing_strategy() != "file_descriptor"
        ):
            return None
        if os.getpid() != self._pid:  # forked: the blocks belong to the parent
            self._start()
        with self._lock:
            try:
                return self._block(size_bytes).lend(shape, dtype, size_bytes)
            except (OSError, AttributeError):  # a system without memfd or /proc; out of descriptors
                return None

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._blocks: list[_Block] = []

    def _block(self, size_bytes: int) -> _Block:
        for block in self._blocks:
            if size_bytes <= block.size_bytes <= 2 * size_bytes and block.is_free():
                return block
        block = _Block(size_bytes)
        self._blocks.append(block)
        del self._blocks[: -self._most]  # a receiver of the oldest keeps its memory alive
        return block


class _Block:
    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._fd = os.memfd_create("unstarve-batch", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, self._fd).atexit = False
        os.ftruncate(self._fd, size_bytes)
        self._memory = np.frombuffer(mmap.mmap(self._fd, size_bytes), np.uint8)

    def is_free(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        return True

    def lend(self, shape: Sequence[int], dtype: torch.dtype, size_bytes: int) -> Lent:
        sent = os.open(f"/proc/self/fd/{self._fd}", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(sent, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if self.is_free():
                raise OSError("this system shares locks between open files")
            storage = _of_shared_file(sent, size_bytes)
        finally:
            os.close(sent)  # the storage has its own descriptor
        batch = torch.empty(0, dtype=dtype).set_(storage).view(*shape)
        inside = torch.from_numpy(self._memory[:size_bytes]).view(dtype).view(*shape)
        return Lent(inside, batch)
