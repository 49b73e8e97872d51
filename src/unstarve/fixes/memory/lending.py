"""Shared memory that a worker process lends to the training process, and uses again when it comes back.

torch's workers make new shared memory for every batch, and the system clears it and maps it in page by page,
which takes ten times as long as copying the batch there. What it takes to use memory again is to know when
nobody holds the batch any more, in whatever process.

The kernel knows. Each time, a block goes out by an open file of its own with a shared lock on it. Whoever
receives the batch holds that open file, by a descriptor and a mapping, for as long as the tensor's storage
lives; so do processes that are forked meanwhile, and those it is sent on to. With the last of them the lock
is gone: then the worker gets an exclusive one.
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
"""What torch's own queues receive tensors with."""
_WORTH_BYTES = 256 << 10
"""Smaller batches are made as torch makes them."""


class Lent(NamedTuple):
    """The memory of a batch, twice: a write to one is seen in the other."""

    inside: torch.Tensor
    """Where this process writes: mapped in already. Not to be kept."""
    batch: torch.Tensor
    """What is sent, in shared memory as torch understands it."""


class Lender:
    """Lends shared memory; keeps at most `most` blocks, whether lent or not.

    For worker processes: a block is free when its batch has been sent and dropped by all who received it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._start()

    def __call__(self, shape: Sequence[int], dtype: torch.dtype) -> Lent | None:
        """Return uninitialized, contiguous memory; None where torch's own way is better or the only one."""
        size_bytes = math.prod(shape) * dtype.itemsize
        if _of_shared_file is None or size_bytes < _WORTH_BYTES or _sharing_strategy() != "file_descriptor":
            return None
        if os.getpid() != self._pid:  # forked: the blocks are the parent's to use again
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
        del self._blocks[: -self._most]  # whoever holds the oldest keeps it
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
                raise OSError("this system does not tell two open files apart")
            storage = _of_shared_file(sent, size_bytes)
        finally:
            os.close(sent)  # the storage has a descriptor of its own
        batch = torch.empty(0, dtype=dtype).set_(storage).view(*shape)
        inside = torch.from_numpy(self._memory[:size_bytes]).view(dtype).view(*shape)
        return Lent(inside, batch)
