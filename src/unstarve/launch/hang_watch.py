"""Watch the training processes of a command from outside: report a wait for a batch that lasts too long.

A thread of the launcher reads their pages (`collect.stuck.state_page`) a few times a second. It also sees a
process that never gives up its interpreter lock. Only waits count: a step may take as long as it likes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from unstarve.collect.stuck import state_page as p
from unstarve.collect.stuck.look import Wait, look_at, wait_of, waits_by_stack
from unstarve.collect.stuck.state_page import SeenPage, training_pages
from unstarve.launch.hang_event import hang_of
from unstarve.model.stuck import Hang, Picture
from unstarve.present.terminal.screen import screen
from unstarve.present.terminal.stuck_text import hang_text
from unstarve.words import clock

_LOOKS_PER_DEADLINE = 8
_SHORTEST_S, _LONGEST_S = 0.05, 0.5
_STALE_S = 3.0
"""A page that was not looked after for so long is not believed: its sampler may stand still."""
_AGAIN = 2.0
"""A hang is reported again when it has lasted this many times as long."""
_MOST_HANGS = 100
_END_S = 5.0


@dataclasses.dataclass(slots=True)
class _Open:
    """A hang that goes on."""

    wait: Wait
    next_s: float
    place: int
    """In the list of hangs; −1 if it was not kept."""
    stale_ns: int = 0
    """What LOOKED was when the stack had to tell; 0 if the page did."""


class Asked(NamedTuple):
    """A stale process whose stack showed no wait: when it was asked, and when to ask again."""

    looked_ns: int
    again_s: float


class HangWatch:
    """Use as a context around the command; afterwards `hangs` holds what was found."""

    def __init__(
        self,
        folder: Path,
        hang_after_s: float,
        *,
        raises: bool = False,
        say: Callable[[str], object] | None = None,
        look: Callable[[SeenPage, Wait | None], Picture] = look_at,
    ) -> None:
        self._folder = folder
        self._after_s = hang_after_s
        self._raises = raises
        self._say = say or _print
        self._look_at = look
        self._open: dict[int, _Open] = {}
        self._asked: dict[int, Asked] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="unstarve-hangs", daemon=True)
        self.hangs: list[Hang] = []

    def __enter__(self) -> HangWatch:
        if self._after_s > 0:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_END_S)
        if self._after_s > 0:
            self._look_safely()

    def _run(self) -> None:
        interval_s = min(max(self._after_s / _LOOKS_PER_DEADLINE, _SHORTEST_S), _LONGEST_S)
        while not self._stop.wait(interval_s):
            if not self._look_safely():
                return

    def _look_safely(self) -> bool:
        try:
            self.look(time.perf_counter_ns())
        except Exception as error:  # a defect of ours must not end the command
            self._say(f"unstarve: hangs are no longer watched: {error!r}\n")
            return False
        return True

    def look(self, now_ns: int) -> None:
        """Look at all training processes once."""
        pages = {page.pid: page for page in training_pages(self._folder) if page.alive}
        for pid in self._open.keys() - pages.keys():  # the process has ended, and its hang with it
            self._keep_length(self._open.pop(pid), now_ns)
        for page in pages.values():
            wait, stale_ns = self._wait(page, now_ns)
            hang = self._open.get(page.pid)
            if hang is not None and (wait is None or wait[:3] != hang.wait[:3]):
                self._resolve(page.pid, hang, now_ns)
                hang = None
            if wait is None:
                continue
            waited_s = (now_ns - wait.since_ns) / 1e9
            if waited_s >= (self._after_s if hang is None else hang.next_s):
                self._report(page, wait, waited_s, stale_ns)

    def _wait(self, page: SeenPage, now_ns: int) -> tuple[Wait | None, int]:
        """The wait that a training process is in, and LOOKED if only its stack could tell."""
        looked_ns = page.words[p.LOOKED]
        stale_s = (now_ns - looked_ns) / 1e9
        told = wait_of(page)
        if page.words[p.BEGINS] > 0 or stale_s < min(_STALE_S, self._after_s):
            return told, 0
        hang = self._open.get(page.pid)
        if hang is not None and hang.stale_ns == looked_ns:
            return hang.wait, looked_ns
        asked = self._asked.get(page.pid)
        if asked is None or asked.looked_ns != looked_ns:
            asked = self._asked[page.pid] = Asked(looked_ns, self._after_s)
        if stale_s < asked.again_s:
            return None, 0
        self._asked[page.pid] = Asked(looked_ns, _AGAIN * stale_s)
        if not waits_by_stack(page):
            return None, 0
        return told or Wait(None, None, None, looked_ns), looked_ns

    def _report(self, page: SeenPage, wait: Wait, waited_s: float, stale_ns: int) -> None:
        picture = self._look_at(page, wait)
        again = p.read_page(page.path)
        if again is None or (not stale_ns and _is_over(wait, again)):
            return  # the batch came while we looked
        before = self._open.get(page.pid)
        text = hang_text(picture, self._after_s, raises=self._raises, width=screen(stderr=True).width)
        self._say(text)
        found = hang_of(picture, "raised" if self._raises else "open", text)
        place = -1 if before is None else before.place
        if place >= 0:
            self.hangs[place] = found
        elif before is None and len(self.hangs) < _MOST_HANGS:
            place = len(self.hangs)
            self.hangs.append(found)
        self._open[page.pid] = _Open(wait, max(_AGAIN * waited_s, _AGAIN * self._after_s), place, stale_ns)
        if self._raises:
            _raise_in(page, text)

    def _resolve(self, pid: int, hang: _Open, now_ns: int) -> None:
        del self._open[pid]
        waited_s = self._keep_length(hang, now_ns)
        if hang.place >= 0:
            kept = self.hangs[hang.place]
            if kept.ended == "raised":
                return
            self.hangs[hang.place] = dataclasses.replace(kept, ended="resolved")
        what = "iter() returned" if hang.wait.batch is None else "the batch came"
        self._say(f"unstarve: {what} after {clock(waited_s)}; training goes on.\n")

    def _keep_length(self, hang: _Open, now_ns: int) -> float:
        """Note how long a hang has lasted in the end; returns the seconds."""
        waited_s = (now_ns - hang.wait.since_ns) / 1e9
        if hang.place >= 0:
            self.hangs[hang.place] = dataclasses.replace(self.hangs[hang.place], waited_s=waited_s)
        return waited_s


def _is_over(wait: Wait, page: SeenPage) -> bool:
    now = wait_of(page)
    return now is None or now[:3] != wait[:3]


def _raise_in(page: SeenPage, text: str) -> None:
    """Let the training process raise a `HangError` with this text."""
    with contextlib.suppress(OSError):
        page.path.with_suffix(p.HANG).write_text(text.removeprefix("unstarve: ").rstrip(), "utf-8")
        if page.words[p.RAISES] and page.alive:
            os.kill(page.pid, page.words[p.RAISES])


def _print(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
