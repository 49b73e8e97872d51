"""The training process's part in finding hangs: which wait it is in, and raising an error inside of it."""

from __future__ import annotations

import os
import signal
import threading
import weakref
from types import FrameType
from typing import Any, Protocol

from unstarve.collect.stuck import state_page as p
from unstarve.collect.stuck.stack_dump import free_signal
from unstarve.collect.stuck.state_page import StatePage
from unstarve.errors import HangError


class Waiting(Protocol):
    """A wait, as far as it is needed here."""

    busy: bool
    epoch: int
    index: int

    @property
    def nested(self) -> bool:
        """Whether it is part of another wait."""


class WaitWatch:
    """Notes on the page which batch training waits for. Looked after by the sampler's thread."""

    def __init__(self, page: StatePage) -> None:
        self._page = page
        self._taps: dict[int, weakref.ref[Any]] = {}
        """The newest `Tap` of each loader; not kept alive: it belongs to its iterator."""
        self._seen: dict[int, tuple[int, int, int]] = {}
        """By loader: epoch and position of the batch, and when it was first seen to be waited for."""

    def follow(self, number: int, tap: Any) -> None:
        """An epoch of this loader begins."""
        self._taps[number] = weakref.ref(tap)

    def look(self, now_ns: int) -> None:
        """Note the wait that has lasted longest."""
        found: tuple[int, tuple[int, int, int]] | None = None
        for number in list(self._taps):
            wait = self._wait(number)
            if wait is None:
                self._seen.pop(number, None)
                continue
            seen = self._seen.get(number)
            if seen is None or seen[:2] != (wait.epoch, wait.index):
                seen = self._seen[number] = (wait.epoch, wait.index, now_ns)
            if found is None or seen[2] < found[1][2]:
                found = number, seen
        if found is None:
            self._page.waits(-1, -1, -1, 0)
        else:
            self._page.waits(found[0], *found[1])
        self._page.words[p.LOOKED] = now_ns

    def is_waiting(self) -> bool:
        """Whether training waits for a batch at this moment."""
        return self._page.words[p.BEGINS] > 0 or any(self._wait(number) is not None for number in self._taps)

    def _wait(self, number: int) -> Waiting | None:
        tap = self._taps[number]()
        wait: Waiting | None = None if tap is None else tap.wait
        return wait if wait is not None and wait.busy and not wait.nested else None

    def raise_when_asked(self) -> None:
        """Raise a `HangError` in the main thread when the launcher sends the page's signal during a wait."""
        if self._page.path is None or threading.current_thread() is not threading.main_thread():
            return
        number = free_signal()
        if not number:
            return
        text = self._page.path.with_suffix(p.HANG)
        owner = os.getpid()

        def handler(_number: int, _frame: FrameType | None) -> None:
            if os.getpid() != owner or not self.is_waiting():
                return  # a batch has come meanwhile
            try:
                said = text.read_text("utf-8")
            except OSError:  # the folder is gone
                return
            raise HangError(said)

        signal.signal(number, handler)
        self._page.words[p.RAISES] = number
