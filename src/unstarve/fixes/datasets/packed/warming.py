"""A cold file that fits into memory, brought there from front to back while samples are read at random.

Long sequential reads are what storage is best at; a spinning disk or a remote one is faster by ten times and
more. So the first epoch takes about as long as reading the file once, in whatever order samples are wanted.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from unstarve.fixes.datasets.packed.file import PackedFile

_AHEAD_OF_DEMAND = 4
"""Bytes brought in for each byte that was wanted: who looks at a few samples does not get the whole file."""
_AT_ONCE_BYTES = 64 << 20
"""What a step brings in; the process cannot end before the kernel has taken it."""
_PIECE_BYTES = 8 << 20


class Warming:
    """Brings one file into the page cache; safe to share between threads."""

    def __init__(self, file: PackedFile) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._wanted = 0
        self._reached = 0
        self._thread: ThreadPoolExecutor | None = None
        self._step: Future[None] | None = None

    def demand(self, size_bytes: int) -> None:
        """Say that so many bytes are about to be read; more will be brought in by a thread."""
        if self._pid != os.getpid():  # a worker forked off: the thread stayed behind
            self._lock = threading.Lock()
            self._begin()
        with self._lock:
            self._wanted += size_bytes
            target = min(
                self._wanted * _AHEAD_OF_DEMAND, self._reached + _AT_ONCE_BYTES, self._file.size_bytes
            )
            if target <= self._reached or (self._step is not None and not self._step.done()):
                return
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="unstarve-warming")
            self._step = self._thread.submit(self._bring, self._reached, target)
            self._reached = target

    def _bring(self, start: int, end: int) -> None:
        for offset in range(start, end, _PIECE_BYTES):
            self._file.expect(offset, min(_PIECE_BYTES, end - offset))
