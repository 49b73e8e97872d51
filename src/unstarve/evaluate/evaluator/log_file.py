"""Keep a JSON log on disk current while training runs, without ever standing in its way."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from unstarve.evaluate.evaluator.epoch_log import now_ns
from unstarve.outputs import write_output

_FLUSH_EVERY_NS = 1_000_000_000
_COSTLY_NS = 20_000_000
_PAUSE_PER_WRITE = 100
"""The pause after a write is at least this many times as long as the write: at most 1 % of the time."""

NEVER_NS = 2**63 - 1


class LogFile:
    """A JSON file that is replaced at each write.

    A write that fails warns once and is not tried again before it is asked for. Only the process that made
    the object writes: a forked worker inherits it and must not.
    """

    def __init__(self, path: Path, *, periodic: bool) -> None:
        self.path = path
        self._periodic = periodic
        self._pid = os.getpid()
        self._has_warned = False
        self.due_ns = now_ns() + _FLUSH_EVERY_NS if periodic else NEVER_NS
        """When the next periodic write is due."""
        self.is_behind = False
        """The last write was put off."""
        self._is_costly = False
        self._rested_ns = 0

    def write(self, document: Callable[[], Mapping[str, Any]], *, can_wait: bool = False) -> None:
        """Write now; or, if that `can_wait`, leave a costly write to the next time one is due."""
        begin_ns = now_ns()
        self.is_behind = can_wait and self._is_costly and begin_ns < self._rested_ns
        if self.is_behind or os.getpid() != self._pid:
            return
        try:
            write_json(self.path, document())
        except OSError as error:
            self.due_ns = NEVER_NS
            self._warn(f"training goes on without its loader log: {error}")
            return
        end_ns = now_ns()
        self._is_costly = end_ns - begin_ns > _COSTLY_NS
        self._rested_ns = end_ns + _PAUSE_PER_WRITE * (end_ns - begin_ns)
        if self._periodic:
            self.due_ns = max(self._rested_ns, end_ns + _FLUSH_EVERY_NS)

    def _warn(self, message: str) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        try:
            warnings.warn(message, RuntimeWarning, stacklevel=4)
        except RuntimeWarning:  # warnings are errors here; training is still not to be stopped by one
            print(f"unstarve: {message}", file=sys.stderr)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Replace `path` in one step, as `replace_text` does."""
    replace_text(path, json.dumps(document) + "\n")


def replace_text(path: Path, text: str) -> None:
    """Replace `path` in one step: whoever reads it sees the old text or the new one, never a part.

    A missing folder is made. Raises `OutputError`, which is an OSError.
    """
    with contextlib.suppress(OSError):  # where it cannot be made, writing says what is missing
        path.parent.mkdir(parents=True, exist_ok=True)
    write_output(path, text, sync=False)  # training must not wait for the storage
