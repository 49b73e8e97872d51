"""Start any command with recording switched on in every Python process it starts.

The command stays in the foreground: it has the terminal, our standard streams and our process group.
A Ctrl-C reaches it from the terminal itself; signals sent to unstarve alone are passed on.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from unstarve.errors import CommandNotFoundError, UsageError
from unstarve.launch.bootstrap_check import put_mark
from unstarve.model.launch_settings import LaunchSettings

_BOOTSTRAP = Path(__file__).parent / "bootstrap"
_PASSED_ON = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
_INTERRUPT_GRACE_S = 2.0
"""A Ctrl-C usually reaches the command too; only when it seems not to have does ours follow.

Too short, and a training that is saving its weights is interrupted a second time."""


def resolve(command: Sequence[str]) -> list[str]:
    """The argument vector to start: scripts and ``-m`` get this Python, anything else runs as it is.

    Raises `CommandNotFoundError` when there is nothing of that name.
    """
    if not command:
        raise UsageError("no command given; write it last, as in: unstarve run train.py --epochs 3")
    first = command[0]
    if first == "-m":
        if len(command) < 2:
            raise UsageError("-m needs the name of a module, as in: unstarve run -m package.train")
        return [sys.executable, *command]
    path = Path(first)
    if path.suffix == ".py" or (path.is_dir() and (path / "__main__.py").exists()):
        if not path.exists():
            raise CommandNotFoundError(f"there is no file {first} in {Path.cwd()}")
        return [sys.executable, *command]
    if shutil.which(first) is None:
        hint = f"; to run it with Python: unstarve run python {first}" if path.is_file() else ""
        raise CommandNotFoundError(f"there is no command {first} that could be started{hint}")
    return list(command)


def switched_on(settings: LaunchSettings) -> dict[str, str]:
    """The environment variables that make every Python process record itself."""
    path = os.pathsep.join(filter(None, [str(_BOOTSTRAP), os.environ.get("PYTHONPATH")]))
    return {**settings.to_environment(), "PYTHONPATH": path}


def launch(
    argv: Sequence[str], settings: LaunchSettings, interrupted: Callable[[], object] = lambda: None
) -> int:
    """Run the command to its end; its exit code, or minus the signal that ended it.

    `interrupted` is called at once when Ctrl-C is pressed.
    """
    environment = {**os.environ, **switched_on(settings), **put_mark(Path(settings.parts))}
    pending: list[int] = []

    def pass_on(number: int) -> None:
        if number == signal.SIGINT:
            interrupted()
        _pass_on(process, number)

    with _handling(pending.append):
        try:
            process = subprocess.Popen(argv, env=environment)
        except OSError as error:
            raise CommandNotFoundError(f"cannot start {argv[0]}: {error.strerror or error}") from error
        with _handling(pass_on):
            for number in pending:  # came between the handlers and the command
                pass_on(number)
            return process.wait()


def _pass_on(process: subprocess.Popen[bytes], number: int) -> None:
    if process.poll() is not None:
        return
    if number == signal.SIGINT:
        timer = threading.Timer(_INTERRUPT_GRACE_S, _interrupt, (process,))
        timer.daemon = True
        timer.start()
    else:
        process.send_signal(number)


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """The second half of a Ctrl-C that was sent to unstarve alone."""
    if process.poll() is None and not _is_foreground():
        process.send_signal(signal.SIGINT)


def _is_foreground() -> bool:
    """Whether a terminal sends its Ctrl-C to our process group, and so to the command."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


@contextmanager
def _handling(action: Callable[[int], object]) -> Iterator[None]:
    """Send all passed-on signals to `action` for a while; ignored ones (nohup) stay ignored."""

    def handler(number: int, _frame: FrameType | None) -> None:
        action(number)

    heeded = [number for number in _PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, handler_before in previous.items():
            signal.signal(number, handler_before)
