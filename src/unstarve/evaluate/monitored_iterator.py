"""An iterator over batches that tells a `Meter` how long each took."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from unstarve.evaluate.epoch_log import now_ns
from unstarve.evaluate.meter import Meter
from unstarve.evaluate.timed_iterator import quick_size

_log = logging.getLogger("unstarve.monitor")


class MonitoredIterator:
    """Behaves as the iterator it wraps, also after an exception.

    A step goes from one batch to the next; the first one of an epoch begins with ``iter()``, whose time is
    part of its wait, and the work on an epoch's last batch counts for the first step of the next epoch.
    What training does between two epochs with no iterator at hand is nobody's step.
    """

    __slots__ = ("_ended", "_iterator", "_meter", "_start_ns", "_step_from_ns")

    def __init__(self, iterator: Iterator[Any], meter: Meter, begin_ns: int) -> None:
        self._ended = False
        self._iterator = iterator
        self._meter = meter
        self._start_ns = now_ns() - begin_ns
        self._step_from_ns = begin_ns - meter.take_rest()

    def __iter__(self) -> MonitoredIterator:
        return self

    def __next__(self) -> Any:
        ask_ns = now_ns()
        try:
            batch = next(self._iterator)
        except StopIteration:
            if not self._ended:
                self._ended = True
                self._meter.keep_rest(ask_ns - self._step_from_ns)
            raise
        got_ns = now_ns()
        wait_ns = got_ns - ask_ns + self._start_ns
        self._start_ns = 0
        step_ns = got_ns - self._step_from_ns
        self._step_from_ns = got_ns
        try:
            self._meter.add(wait_ns, step_ns, got_ns, quick_size(batch))
        except Exception:  # a defect of ours must not cost the user the training
            _log.exception("a batch could not be counted; training goes on")
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_iterator"), name)
