"""What the first batch waits for: the dataset on its way to the workers, and the first fetch."""

from __future__ import annotations

import io
import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

from unstarve.model.check_report import CheckedLoader
from unstarve.model.checks import finding
from unstarve.model.finding import Finding
from unstarve.words import duration, size, workers

_LONGEST_S = 10.0
"""Pickling is given up after this long: what is known by then is enough to say that it is slow."""
_SLOW_START_S = 10.0


class Pickled(NamedTuple):
    """What one worker is sent."""

    nbytes: int
    seconds: float


class _TooSlowError(Exception):
    pass


class _Counter(io.RawIOBase):
    """Counts bytes and drops them."""

    def __init__(self) -> None:
        self.nbytes = 0
        self.until_s = time.monotonic() + _LONGEST_S

    def write(self, data: Any) -> int:
        count = memoryview(data).nbytes
        self.nbytes += count
        if time.monotonic() > self.until_s:
            raise _TooSlowError
        return count


def pickled_for_worker(loader: Any) -> Pickled | None:
    """Bytes and seconds of the dataset's way to each worker; None if it is forked or cannot be pickled."""
    if not loader.num_workers or start_method(loader) == "fork":
        return None
    counter, began_s = _Counter(), time.monotonic()
    try:
        ForkingPickler(counter).dump(loader.dataset)
    except _TooSlowError:
        pass
    except Exception:  # a check of its own says what cannot be pickled
        return None
    return Pickled(counter.nbytes, time.monotonic() - began_s)


def start_method(loader: Any) -> str:
    """How the loader's workers are started: fork, spawn or forkserver."""
    context = loader.multiprocessing_context or multiprocessing
    return str(context.get_start_method())


def slow_start(checked: CheckedLoader) -> Iterator[Finding]:
    """A note about a loader whose first batch takes long."""
    if checked.first_batch_s is None or checked.first_batch_s < _SLOW_START_S:
        return
    message = (
        f"The first batch of {checked.name} came {duration(checked.first_batch_s)} after the epoch began"
    )
    fix = "Build the dataset lazily: read indices and files when the first sample is asked for."
    if checked.pickled_bytes is not None and checked.pickle_s is not None:
        sent = f"{size(checked.pickled_bytes)} in {duration(checked.pickle_s)}"
        message += f"; each of its {workers(checked.workers)} is sent {sent}"
        fix = "Send workers less: unstarve.share(dataset), or open the data in the worker."
    yield finding(
        "slow-start",
        f"{message}.",
        fix,
        file=checked.file,
        line=checked.line,
    )
