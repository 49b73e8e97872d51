"""An iterator over batches that records when each was requested and when it arrived."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from unstarve.collect.describe import batch_extent
from unstarve.evaluate.evaluator.epoch_log import EpochLog, now_ns
from unstarve.evaluate.evaluator.load_recorder import LoadRecorder

_USUAL_CONTAINERS = frozenset((dict, list, tuple))
_MOST = 2**63
"""More samples than any batch has, whatever a foreign object says, and more than a log field holds."""


class TimedIterator:
    """Behaves like the iterator it wraps, also after an exception, at well under a microsecond per batch.

    `on_exhausted` is called with the number of batches when the iterator is exhausted.
    """

    __slots__ = ("_advance", "_epoch", "_iterator", "_note", "_on_exhausted", "_recorder")

    def __init__(
        self,
        iterator: Iterator[Any],
        epoch: EpochLog,
        recorder: LoadRecorder,
        on_exhausted: Callable[[int], None],
    ) -> None:
        self._iterator = iterator
        self._epoch = epoch
        self._recorder = recorder
        self._on_exhausted = on_exhausted
        # Looked up once: these run for every batch.
        self._advance = iterator.__next__
        self._note = epoch.batches.extend

    def __iter__(self) -> TimedIterator:
        return self

    def __next__(self) -> Any:
        ask_ns = now_ns()
        try:
            batch = self._advance()
        except StopIteration:
            self._recorder.end_epoch(self._epoch, exhausted=True)
            if self._epoch.error is None:
                self._on_exhausted(len(self._epoch.batches) // 3)
            raise
        except BaseException as error:
            self._epoch.error = type(error).__name__
            self._recorder.write_log()
            raise
        got_ns = now_ns()
        self._note((ask_ns, got_ns, quick_size(batch)))
        if got_ns >= self._recorder.due_ns:
            self._recorder.write_log()
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_iterator"), name)

    def __del__(self) -> None:
        with suppress(Exception):  # at interpreter exit, anything may be gone already
            self._recorder.end_epoch(self._epoch, exhausted=False)


def quick_size(batch: Any) -> int:
    """Samples in a batch, −1 if unknown: `batch_extent`, with a short cut to the usual first tensor."""
    item = batch
    try:
        while (kind := type(item)) in _USUAL_CONTAINERS:
            item = next(iter(item.values())) if kind is dict else item[0]
        size = int(item.shape[0])
        return size if size < _MOST else -1
    except Exception:  # the first item is not a tensor
        try:
            return batch_extent(batch)[0]
        except Exception:  # a foreign object that raises when inspected
            return -1
