"""Start a command so that every Python process it starts records itself.

The command runs in the foreground, with the terminal, the standard streams and the process group of unstarve.
A Ctrl-C reaches it from the terminal; signals sent to unstarve alone are forwarded.
"""

from __future__ import annotations

import contextlib
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

import psutil

from unstarve.errors import CommandNotFoundError, UsageError
from unstarve.launch.bootstrap_check import put_marker
from unstarve.launch.io_library import io_environment
from unstarve.model.launch_settings import LaunchSettings

_BOOTSTRAP = Path(__file__).parent / "bootstrap"
_FORWARDED = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
_ANSWER_S = 10.0
_END_S = 10.0
"""How long processes may take to end after they were asked to."""
_INTERRUPT_GRACE_S = 2.0
"""A Ctrl-C usually reaches the command, too. After this long it is forwarded if it seems not to have.

Too short, and a training that is saving its weights is interrupted twice."""


def resolve(command: Sequence[str]) -> list[str]:
    """The argument vector to start: scripts and ``-m`` run with this Python, anything else as it is.

    Raises `CommandNotFoundError` when there is no such script or command.
    """
    if not command:
        raise UsageError("no command given; put it last: unstarve run train.py --epochs 3")
    first = command[0]
    if first == "-m":
        if len(command) < 2:
            raise UsageError("-m needs the name of a module: unstarve run -m package.train")
        return [sys.executable, *command]
    path = Path(first)
    if path.suffix == ".py" or (path.is_dir() and (path / "__main__.py").exists()):
        if not path.exists():
            raise CommandNotFoundError(f"no file {first} in {Path.cwd()}")
        return [sys.executable, *command]
    if shutil.which(first) is None:
        hint = f"; to run it with Python: unstarve run python {first}" if path.is_file() else ""
        raise CommandNotFoundError(f"command not found: {first}{hint}")
    return list(command)


def other_python(command: Sequence[str]) -> str | None:
    """A sentence if `resolve` chose this Python for a script although another one is active; else None."""
    if resolve(command)[0] != sys.executable or command[0] == sys.executable:
        return None
    environment = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    inside = None if environment is None else shutil.which("python", path=str(Path(environment, "bin")))
    active = inside or shutil.which("python") or shutil.which("python3")
    if active is None or _is_this(active):
        return None
    shown = " ".join(command[:2] if command[0] == "-m" else command[:1])
    return (
        f"running {shown} with {sys.executable} (unstarve's own Python); your active one is {active}: "
        f"to use that, unstarve run python {shown}"
    )


def _is_this(python: str) -> bool:
    """Whether a Python belongs to the environment of this one. A shim (pyenv's) has to be asked."""
    ours = Path(sys.executable)
    if Path(python).parent.resolve() == ours.parent.resolve() and Path(python).resolve() == ours.resolve():
        return True
    try:
        asked = [python, "-I", "-c", "import sys; print(sys.prefix, *sys.version_info[:2], sep=chr(10))"]
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=_ANSWER_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return True  # it does not run, so the command would not either
    prefix, *version = answer.stdout.splitlines()
    same_version = version == [str(number) for number in sys.version_info[:2]]
    return same_version and Path(prefix).resolve() == Path(sys.prefix).resolve()


def switched_on(settings: LaunchSettings) -> dict[str, str]:
    """The environment variables that make every Python process record itself."""
    path = os.pathsep.join(filter(None, [str(_BOOTSTRAP), os.environ.get("PYTHONPATH")]))
    quiet = {} if settings.profile is None else {"KINETO_LOG_LEVEL": os.environ.get("KINETO_LOG_LEVEL", "99")}
    counting = io_environment(settings.parts) if settings.io else {}
    return {**settings.to_environment(), **quiet, **counting, "PYTHONPATH": path}


def launch(
    argv: Sequence[str],
    settings: LaunchSettings,
    interrupted: Callable[[], object] = lambda: None,
    *,
    timeout_s: float | None = None,
    stdout: int | None = None,
) -> int:
    """Run the command to its end; returns its exit code, or minus the number of the signal that ended it.

    `interrupted` is called as soon as Ctrl-C is pressed. After `timeout_s` the command and all its processes
    are ended, and `TimeoutError` is raised. `stdout` is a descriptor for its standard output.
    """
    environment = {**os.environ, **switched_on(settings), **put_marker(Path(settings.parts))}
    pending: list[int] = []

    def forward(number: int) -> None:
        if number == signal.SIGINT:
            interrupted()
        _forward(process, number)

    with _handling(pending.append):
        try:
            process = subprocess.Popen(argv, env=environment, stdout=stdout)
        except OSError as error:
            raise CommandNotFoundError(f"cannot start {argv[0]}: {error.strerror or error}") from error
        with _handling(forward):
            for number in pending:  # arrived before the command was started
                forward(number)
            try:
                return process.wait(timeout_s)
            except subprocess.TimeoutExpired as expired:
                _end_all(process)
                raise TimeoutError from expired


def _end_all(process: subprocess.Popen[bytes]) -> None:
    """End a command and all processes that it has started; none is left on return."""
    processes: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        whole = psutil.Process(process.pid)
        processes = [whole, *whole.children(recursive=True)]
    process.terminate()
    for alive in psutil.wait_procs(processes, timeout=_END_S)[1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            alive.kill()
    process.wait()


def _forward(process: subprocess.Popen[bytes], number: int) -> None:
    if process.poll() is not None:
        return
    if number == signal.SIGINT:
        timer = threading.Timer(_INTERRUPT_GRACE_S, _interrupt, (process,))
        timer.daemon = True
        timer.start()
    else:
        process.send_signal(number)


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """Forward a Ctrl-C that was sent to unstarve alone."""
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
    """Call `action` for every forwarded signal inside the block; ignored signals (nohup) stay ignored."""

    def handler(number: int, _frame: FrameType | None) -> None:
        action(number)

    handled = [number for number in _FORWARDED if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, handler) for number in handled}
    try:
        yield
    finally:
        for number, handler_before in previous.items():
            signal.signal(number, handler_before)
