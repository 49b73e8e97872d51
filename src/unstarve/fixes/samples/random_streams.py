"""Which generator a thread draws from, for datasets that draw random numbers while they make a batch.

torch gives each worker process its own generator, seeded from the loader's. An engine whose workers are
threads gives each thread such a stream here; everywhere else the process's generator is used.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class RandomStream:
    """The stream of a thread that replaces a worker: `generator` is what that worker would draw from.

    `sharers` is the number of such threads, which share the cores of the process.
    """

    generator: torch.Generator
    sharers: int


_in_thread = threading.local()


def use_stream_in_thread(stream: RandomStream | None) -> None:
    """Draw from `stream` in the calling thread from now on; None: from the process's generator again."""
    _in_thread.stream = stream


def generator_here() -> torch.Generator | None:
    """Return the calling thread's generator as torch's functions take it: None for the process's own."""
    stream: RandomStream | None = getattr(_in_thread, "stream", None)
    return None if stream is None else stream.generator


def threads_here() -> int:
    """Return how many threads native code may use: one in a worker process, else a share of the cores."""
    stream: RandomStream | None = getattr(_in_thread, "stream", None)
    return max(1, torch.get_num_threads() // (1 if stream is None else stream.sharers))
