"""The version that came with a lab, for questions whose answers have to be measured anew."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from unstarve.labs.lab import Lab


@contextmanager
def original(lab: Lab) -> Iterator[Any]:
    """Its slow version as a module; until the block ends, torch uses one thread."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler logs; torch reads it when imported
    import torch

    from unstarve.labs.harness import imported

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield imported(lab.folder / lab.slow)
    finally:
        torch.set_num_threads(threads)
