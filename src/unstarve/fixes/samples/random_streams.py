"""Which generator a thread draws from, for datasets that draw random numbers while they make a batch.

torch gives each worker process its own generator, seeded from the loader's. An engine whose workers are
threads gives each thread such a stream here; everywhere else the process's generator is used.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch


class PendingBatch(Protocol):
    """A batch whose samples are read. A dataset whose `load_batch` returns it is served by any thread.

    `draw` is called once, in the order of the batches, whatever the number of threads; `make` after it, and
    at the same time as that of other batches.
    """

    def draw(self, generator: torch.Generator | None) -> None:
        """Draw all random numbers of the batch; None: from the process's generator."""

    def make(self) -> Any:
        """Return the batch, without holding the GIL for long."""


LoadBatch = Callable[[Any], PendingBatch]


@dataclass(frozen=True)
class RandomStream:
    """The stream of a thread that replaces a worker: `generator` is what that worker would draw from.

    None: it draws nothing. `threads` returns the number of threads that native code may use, for all such
    threads together; it is called when that is first asked for.
    """

    generator: torch.Generator | None
    threads: Callable[[], int]


_in_thread = threading.local()


def use_stream_in_thread(stream: RandomStream | None) -> None:
    """Draw from `stream` in the calling thread from now on; None: from the process's generator again."""
    _in_thread.stream = stream


def generator_here() -> torch.Generator | None:
    """Return the calling thread's generator as torch's functions take it: None for the process's own."""
    stream: RandomStream | None = getattr(_in_thread, "stream", None)
    return None if stream is None else stream.generator


def threads_here() -> int:
    """Return how many threads native code may use: one in a worker process."""
    stream: RandomStream | None = getattr(_in_thread, "stream", None)
    return torch.get_num_threads() if stream is None else stream.threads()
