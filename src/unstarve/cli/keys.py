"""Single key presses from the terminal, which is left as it was found."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from types import FrameType

_NAMES = {
    b"\x1b[C": "right",
    b"\x1b[D": "left",
    b"\x1bOC": "right",
    b"\x1bOD": "left",
    b"\x1b[Z": "left",
    b"\t": "right",
    b" ": "p",
    b"h": "?",
    b"Q": "q",
    b"\x1b": "q",
}
"""Keys with another name than their letter. Escape quits, as in other full-screen programs."""
_WAKING = (signal.SIGWINCH, signal.SIGTSTP)
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_MOST_BYTES = 64
SUSPEND = "suspend"
RESIZE = "resize"


class Keys:
    """Key presses and signals, one at a time; made by `listening`."""

    def __init__(self, keyboard: int | None, wakeup: int) -> None:
        self.keyboard = keyboard
        """File descriptor of the terminal; None if standard input is not one."""
        self._wakeup = wakeup
        self._waiting: list[str] = []

    def wait(self, timeout_s: float) -> str | None:
        """The next key by its letter or name, `RESIZE` or `SUSPEND`; None after the timeout."""
        if not self._waiting:
            watched = [fd for fd in (self.keyboard, self._wakeup) if fd is not None]
            ready, _, _ = select.select(watched, [], [], max(timeout_s, 0.0))
            if self._wakeup in ready:
                numbers = set(os.read(self._wakeup, _MOST_BYTES))
                self._waiting += [RESIZE] if signal.SIGWINCH in numbers else []
                self._waiting += [SUSPEND] if signal.SIGTSTP in numbers else []
            if self.keyboard in ready:
                self._read(self.keyboard)
        return self._waiting.pop(0) if self._waiting else None

    def _read(self, keyboard: int) -> None:
        data = os.read(keyboard, _MOST_BYTES)
        if not data:  # the terminal is gone
            self.keyboard = None
            self._waiting.append("q")
        elif data.startswith(b"\x1b"):
            self._waiting += [_NAMES[data]] if data in _NAMES else []
        else:
            pressed = (bytes([byte]) for byte in data)
            self._waiting += [_NAMES.get(key, key.decode(errors="replace")) for key in pressed]


@contextlib.contextmanager
def listening() -> Iterator[Keys]:
    """Read single key presses inside the block; afterwards the terminal is as it was, however the block ends.

    SIGTERM and SIGHUP end the block with `SystemExit`, so that the screen can be restored.
    """
    keyboard = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    before = termios.tcgetattr(keyboard) if keyboard is not None else None
    handlers = {number: signal.getsignal(number) for number in (*_WAKING, *_ENDING)}
    waker = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        for number in _WAKING:
            signal.signal(number, _only_wake)
        for number in _ENDING:
            signal.signal(number, _leave)
        if keyboard is not None:
            tty.setcbreak(keyboard, termios.TCSADRAIN)  # Ctrl-C still interrupts
        yield Keys(keyboard, reading)
    finally:
        if keyboard is not None and before is not None:
            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        signal.set_wakeup_fd(waker)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)


def _only_wake(_number: int, _frame: FrameType | None) -> None:
    """Python writes the signal's number to the wake-up descriptor; there is nothing else to do."""


def _leave(number: int, _frame: FrameType | None) -> None:
    for ending in _ENDING:
        signal.signal(ending, signal.SIG_IGN)  # restoring the terminal must not be interrupted
    raise SystemExit(128 + number)
