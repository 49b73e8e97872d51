"""Python stacks on demand: a process writes those of all its threads into a file when it gets a signal.

``faulthandler`` writes them inside the signal handler, so that it works while the process is blocked in a C
function, with or without the interpreter lock. The signal is a real-time one that nobody uses:

    Thread 0x00007f3a (most recent call first):
      File "/home/me/train.py", line 31 in __getitem__
      …
    Current thread 0x00007f3b (most recent call first):
      …

From outside, `ask` sends the signals and `read` waits for the answers.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import time
from collections.abc import Iterable
from multiprocessing.process import parent_process
from pathlib import Path

from unstarve.collect.stuck import state_page as p
from unstarve.collect.stuck.state_page import SeenPage, StatePage, state_of

_ANSWER_S = 1.0
_LOOK_S = 0.01
_OUTERMOST = (" in <module>\n", "  ...\n")
_STACK = re.compile(r"(?:(?:Thread|Current thread) 0x([0-9a-f]+)[^\n]*|Stack [^\n]*):\n((?:  [^\n]*\n)*)")
_FRAME = re.compile(r"""  File "(.*)", line (\d+) in (.*)""")
_SPARED = 4
"""Real-time signals at either end are left to libraries that count from there."""

Line = tuple[str, int, str]
"""File, line, function."""

_number = 0
"""The signal of this process, inherited by forked workers."""
_fd = -1


def own_page(folder: Path | None, worker: int | None) -> StatePage:
    """A new page of this process, which from now on shows its stacks when asked; private without a folder."""
    started_by = parent_process()
    parent = os.getppid() if started_by is None else started_by.pid or 0
    page = StatePage(folder, worker, parent)
    with contextlib.suppress(OSError, RuntimeError):  # no file or no signal: then without stacks
        answer_with_stacks(page)
    return page


def answer_with_stacks(page: StatePage) -> None:
    """Write the stacks of this process into a file next to its page whenever it gets the page's signal."""
    global _number, _fd
    if page.path is None or not hasattr(signal, "SIGRTMIN"):
        return
    _number = _number or free_signal()
    path = page.path.with_suffix(p.STACKS)
    before = _fd
    _fd = os.open(os.fsencode(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    if not _number:
        return
    faulthandler.register(_number, file=_fd, all_threads=True, chain=False)
    if before >= 0:  # the parent's, inherited by a fork
        os.close(before)
    page.words[p.FD], page.words[p.SIGNAL] = _fd, _number


def leave_stack_when_killed() -> None:
    """Write the stack into the same file if this process dies of a bus error or the like.

    Not where the user's own ``faulthandler`` is on. Handlers from before are called afterwards.
    """
    if _fd >= 0 and not faulthandler.is_enabled():
        faulthandler.enable(file=_fd, all_threads=False)


def free_signal(status: Path = Path("/proc/self/status")) -> int:
    """A real-time signal that nobody has blocked, ignored or given a handler; 0 if there is none."""
    try:
        found = re.findall(r"^Sig(?:Blk|Ign|Cgt):\s*([0-9a-f]+)$", status.read_text(), re.MULTILINE)
    except OSError:
        return 0
    used = 0
    for mask in found:
        used |= int(mask, 16)
    numbers = range(signal.SIGRTMAX - _SPARED, signal.SIGRTMIN + _SPARED, -1)
    return next((n for n in numbers if not used >> (n - 1) & 1 and signal.getsignal(n) is signal.SIG_DFL), 0)


def ask(pages: Iterable[SeenPage]) -> dict[int, int]:
    """Ask these processes for their stacks. Returns where each answer will begin, by pid.

    Left out: a process that is stopped or has ended, and one that would not answer but die.
    """
    asked = {}
    for page in pages:
        file = page.path.with_suffix(p.STACKS)
        if not page.alive or state_of(page.pid) in "TtX" or not _will_answer(page, file):
            continue
        try:
            size = file.stat().st_size
            os.kill(page.pid, page.words[p.SIGNAL])
        except OSError:
            continue
        asked[page.pid] = size
    return asked


def read(pages: Iterable[SeenPage], asked: dict[int, int]) -> dict[int, dict[int, list[Line]]]:
    """The answers: by pid, then by Python's number of the thread, its frames, the innermost first."""
    until = time.monotonic() + _ANSWER_S
    found: dict[int, dict[int, list[Line]]] = {}
    waiting = [page for page in pages if page.pid in asked]
    while waiting:
        last_look = time.monotonic() > until
        for page in list(waiting):
            text = _since(page.path.with_suffix(p.STACKS), asked[page.pid])
            stacks = parse(text)
            if last_look or (page.words[p.THREAD] in stacks and text.endswith(_OUTERMOST)):
                found[page.pid] = stacks
                waiting.remove(page)
        if waiting:
            time.sleep(_LOOK_S)
    return {pid: stacks for pid, stacks in found.items() if stacks}


def parse(text: str) -> dict[int, list[Line]]:
    """The stacks in a dump, by Python's number of the thread."""
    stacks = {}
    for ident, lines in _STACK.findall(text):
        frames = (_FRAME.fullmatch(line) for line in lines.splitlines())
        stacks[int(ident or "0", 16)] = [
            (m[1].removesuffix(_UNCOUNTED), int(m[2]), m[3]) for m in frames if m
        ]
    return stacks


_UNCOUNTED = " (as importlib._bootstrap)"
"""`stack_levels` adds it to the file names of unstarve's own frames."""


def last_words(page: SeenPage) -> list[Line]:
    """The stack that a process left when a signal killed it; empty if it left none."""
    text = _since(page.path.with_suffix(p.STACKS), 0)
    fatal = text.rfind("Fatal Python error:")
    stacks = parse(text[fatal:]) if fatal >= 0 else {}
    return next(iter(stacks.values()), [])


def _since(file: Path, start: int) -> str:
    try:
        with file.open("rb") as stream:
            stream.seek(start)
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _will_answer(page: SeenPage, file: Path) -> bool:
    """Whether the signal has its handler and the handler its file: programs replace and close things."""
    number, fd = page.words[p.SIGNAL], page.words[p.FD]
    if not number:
        return False
    try:
        status = Path(f"/proc/{page.pid}/status").read_text()
        caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
        same = Path(f"/proc/{page.pid}/fd/{fd}").readlink() == file.resolve()
    except OSError:
        return False
    return same and caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)
