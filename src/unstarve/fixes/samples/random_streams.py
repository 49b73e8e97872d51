"""Whose random numbers a thread draws, for datasets that draw some while they make a batch.

torch gives each worker process a generator of its own, seeded from the loader's. An engine whose workers are
threads gives each thread such a stream here; anywhere else the process's own generator is the right one.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Stream:
    """A thread that stands for a worker: `generator` is what that worker would draw from.

    `sharers` is how many such threads there are: they have the cores of the process between them.
    """

    generator: torch.Generator
    sharers: int


_in_thread = threading.local()


def use_stream_in_thread(stream: Stream | None) -> None:
    """Draw from `stream` in the calling thread from now on; None: from the process's generator again."""
    _in_thread.stream = stream


def generator_here() -> torch.Generator | None:
    """Return what the calling thread draws from, as torch's functions take it: None for the process's own."""
    stream: Stream | None = getattr(_in_thread, "stream", None)
    return None if stream is None else stream.generator


def threads_here() -> int:
    """Return how many threads native work may use: one in a worker process, else all cores' or a share."""
    stream: Stream | None = getattr(_in_thread, "stream", None)
    return max(1, torch.get_num_threads() // (1 if stream is None else stream.sharers))
