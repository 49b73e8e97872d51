"""A child process that runs inputs under limits, started anew when an input ends it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fuzz import ROOT

WALL_S = 90
"""Longer than any input takes on a busy machine: who needs it waits for something."""
_START_S = 300


@dataclass(frozen=True)
class Limits:
    """What one input may use. Natively, sanitizers make everything slower and larger."""

    cpu_s: int = 5
    memory_mb: int = 400


@dataclass(frozen=True)
class Outcome:
    """What became of an input; `finding` is None where it was read or refused as it should be."""

    finding: str | None
    detail: str
    refused: str | None
    cpu_s: float
    bytes: int


class Runner:
    """Runs inputs in a child; to be closed. `native` is a program made of `fuzz/native/`."""

    def __init__(self, native: Path | None = None, limits: Limits | None = None) -> None:
        self._native = native
        self._limits = limits or Limits()
        self._child: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the runner
        self._folder = tempfile.TemporaryDirectory(prefix="unstarve-fuzz-")

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def outcome(self, target: str, data: bytes) -> Outcome:
        """Run one input."""
        child = self._child or self._start()
        assert child.stdin is not None
        frame = data if self._native else f"{target}\n".encode() + data
        try:
            child.stdin.write(len(frame).to_bytes(4, "little") + frame)
            child.stdin.flush()
            line = self._line(WALL_S)
        except BrokenPipeError:
            line = None
        if line:
            said: dict[str, Any] = json.loads(line)
            detail, refused = said.get("detail", ""), said.get("refused")
            return Outcome(said.get("finding"), detail, refused, said.get("cpu_s", 0.0), said.get("bytes", 0))
        return self._ended(hung=line is None and child.poll() is None)

    def close(self) -> None:
        """End the child and whatever it has started, and remove its files."""
        self._stop()
        self._log.close()
        self._folder.cleanup()

    def _stop(self) -> None:
        if self._child is not None:
            child, self._child = self._child, None
            _kill(child, signal.SIGKILL)
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):  # what it was sent and never read
                        pipe.close()

    def _start(self) -> subprocess.Popen[bytes]:
        limits = self._limits
        self._log.seek(0)
        self._log.truncate()
        if self._native is None:
            folder = tempfile.mkdtemp(dir=self._folder.name)
            numbers = (str(limits.cpu_s), str(limits.memory_mb))
            command = [sys.executable, "-m", "fuzz.child", *numbers, folder]
        else:
            command = [str(self._native), str(limits.cpu_s)]
        sanitizers = f"hard_rss_limit_mb={limits.memory_mb}:max_allocation_size_mb={limits.memory_mb}"
        environment = os.environ | {
            "ASAN_OPTIONS": f"{sanitizers}:detect_leaks=0:abort_on_error=1",
            "UBSAN_OPTIONS": "print_stacktrace=1",
            "MALLOC_ARENA_MAX": "2",  # address space is counted, and an arena per thread takes much of it
            "OMP_NUM_THREADS": "1",
        }
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the driver, which ends the child
        )
        if self._line(_START_S) != b"ready\n":
            raise RuntimeError(f"{command[0]} did not start:\n{self._said()}")
        return self._child

    def _line(self, timeout_s: float) -> bytes | None:
        """The child's next line; empty when it has ended, None when it took too long."""
        assert self._child is not None
        assert self._child.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                return None
        return self._child.stdout.readline()

    def _ended(self, *, hung: bool) -> Outcome:
        assert self._child is not None
        if hung:
            _kill(self._child, signal.SIGABRT)  # faulthandler and sanitizers say where it was
        try:
            code = self._child.wait(10)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        said = self._said()
        self._stop()
        why = "waits for ever" if hung else _why(code)
        return Outcome(f"{why}{_place(said)}", said[-6000:], None, 0.0, 0)

    def _said(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")


def _why(code: int) -> str:
    if code == -signal.SIGXCPU:
        return "too much time"
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _place(said: str) -> str:
    """Where a process was when it ended: by a sanitizer or by faulthandler."""
    if summary := re.search(r"SUMMARY: (.*)", said):
        return f": {summary[1]}"
    if error := re.search(r"runtime error: .*|hard rss limit exhausted", said):
        return f": {error[0]}"
    ours = re.findall(r'File "([^"]*)", line \d+ in (\w+)', said)
    frames = [(path, function) for path, function in ours if path.startswith(str(ROOT))]
    return f" in {Path(frames[0][0]).name}:{frames[0][1]}" if frames else ""


def _kill(child: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)
