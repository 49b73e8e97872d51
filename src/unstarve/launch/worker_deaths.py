"""Why did a worker die? Reads what it left: its page, its last stack, its exit code, the words of torch.

RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that …
RuntimeError: DataLoader worker (pid(s) 4711, 4712) exited unexpectedly
    RuntimeError: DataLoader worker (pid 4711) exited unexpectedly with exit code 3. Details are lost …
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from unstarve.collect.stuck.failures import LoaderFailure, failures_in
from unstarve.collect.stuck.look import frames_of
from unstarve.collect.stuck.stack_dump import last_words
from unstarve.collect.stuck.state_page import RECEIVED, SeenPage, worker_pages
from unstarve.launch.command_errors import exceptions_in
from unstarve.launch.hang_event import hang_of
from unstarve.machine import oom_kills
from unstarve.model.stuck import Breakage, Hang, WorkerDeath
from unstarve.present.terminal.stuck_text import task_words, timeout_text

_DIED = re.compile(
    r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\)"
    r"(?: is killed by signal: (.*?)\.| exited unexpectedly(?: with exit code (\d+))?)"
)


class Aftermath:
    """Made before the command starts; `breakage` is asked for when it has ended."""

    def __init__(self, parts: Path, pages: Path) -> None:
        self._parts = parts
        self._pages = pages
        self._killed_before = oom_kills()

    def breakage(self, hangs: Sequence[Hang]) -> tuple[Breakage, list[str]]:
        """What broke, and texts about timeouts that were not printed yet."""
        # torch raises in its handler of SIGCHLD, too: in the middle of whatever training was doing.
        ended = [LoaderFailure(text, "the loader") for text in exceptions_in(self._parts)]
        failures = [*ended, *failures_in(self._pages)]
        timeouts = [one for one in failures if one.picture is not None]
        texts = [
            timeout_text(one.picture, one.timeout_s or 0.0) for one in timeouts if one.picture is not None
        ]
        late = [
            hang_of(one.picture, "timeout", text, one.timeout_s)
            for one, text in zip(timeouts, texts, strict=True)
            if one.picture is not None
        ]
        pages = {page.pid: page for page in worker_pages(self._pages)}
        deaths = [death for one in failures for death in self._deaths(one, pages)]
        return Breakage((*hangs, *late), tuple({death.pid: death for death in deaths}.values())), texts

    def _deaths(self, failure: LoaderFailure, pages: dict[int, SeenPage]) -> Iterator[WorkerDeath]:
        died = _DIED.search(failure.message)
        named = [] if died is None else [int(pid) for pid in died[1].replace(",", " ").split()]
        said_code, said_signal = (None, None) if died is None else (died[3], died[2])
        for pid in named or failure.exits:
            page, code = pages.get(pid), failure.exits.get(pid, None if said_code is None else int(said_code))
            frames = [] if page is None else [f for f in frames_of(last_words(page)) if f.users]
            place = frames[0] if frames else None
            yield WorkerDeath(
                pid=pid,
                loader=failure.loader,
                doing="" if page is None else task_words(page.task(page.words[RECEIVED])),
                source="" if place is None else place.source,
                worker=None if page is None else page.worker,
                signal=_signal_name(code, said_signal),
                exit_code=code if code is not None and code >= 0 else None,
                oom_kills=self._killed(),
                file=None if place is None else place.file,
                line=None if place is None else place.line,
            )

    def _killed(self) -> int | None:
        now = oom_kills()
        return None if now is None or self._killed_before is None else max(now - self._killed_before, 0)


def _signal_name(exit_code: int | None, words: str | None) -> str | None:
    """The signal that an exit code or torch's words name: ``Bus error`` is SIGBUS."""
    for one in signal.Signals:
        if (exit_code is not None and -exit_code == one) or (words and signal.strsignal(one) == words):
            return one.name
    return None if exit_code is None or exit_code >= 0 else f"signal {-exit_code}"
