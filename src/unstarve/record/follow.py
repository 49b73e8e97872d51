"""Read a run while it is being written: each time only what is new.

A follower keeps the last seconds of each process's events, however long the run lasts, and unpacks no more
rows than it keeps: a run of a hundred thousand batches a second costs hardly more than any other.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

from unstarve.errors import RunFileError
from unstarve.model import Run, Tail
from unstarve.record import format as f
from unstarve.record.ends import launch_of, launcher_alive, result_of
from unstarve.record.recent import GrowingFile, Recent

WINDOW_S = 5.0
_MOST_PROCESSES = 1 << 14
"""More that live at one time are not looked at."""
_SILENT_S = 10.0
"""Who has written nothing for so long may be gone; who wrote later is not."""


class Follower:
    """Follows one run. Raises `RunFileError` when there is none, or it cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: dict[Path, GrowingFile] = {path: GrowingFile(path)}
        self._recents: dict[int, Recent] = {}
        self._parts = path.with_name(path.name + f.PARTS_SUFFIX)
        self._listed_ns = -1
        self._identity: tuple[int, int, int] | None = None
        self._result: dict[str, Any] | None = None
        self._host = socket.gethostname()
        self._written_s: float | None = None
        """When anything was written last, in seconds since 1970."""

    def read(self) -> Tail:
        """The run as it is now."""
        self._look_for_result()
        if self._result is None or self._result.get("folded") is False:
            self._look_for_parts()
            for file in list(self._files.values()):
                self._read_new(file)
            self._forget_the_gone()
        return self._tail()

    def _look_for_result(self) -> None:
        """The run file grows once only: when the launcher folds the parts into it."""
        try:
            stat = self.path.stat()
        except OSError as error:
            if self._identity is not None:
                raise RunFileError(f"{self.path} was taken away while it was being looked at") from error
            reason = "there is none" if isinstance(error, FileNotFoundError) else error.strerror or error
            raise RunFileError(f"cannot read {self.path}: {reason}") from error
        # A result that is written into reserved space changes no size.
        identity = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if identity != self._identity:
            known_before, self._identity = self._identity is not None, identity
            if not known_before:
                self._read_new(self._files[self.path])
            self._result = result_of(self.path)
            self._written_s = max(self._written_s or 0.0, stat.st_mtime) if self._result else self._written_s

    def _look_for_parts(self) -> None:
        try:
            changed_ns = self._parts.stat().st_mtime_ns
            if changed_ns != self._listed_ns:
                for path in sorted(self._parts.glob(f"*{f.PART_SUFFIX}")):
                    self._files.setdefault(path, GrowingFile(path))
                # One second: a part made within the clock's grain of this listing must be found by the next.
                self._listed_ns = changed_ns if time.time_ns() - changed_ns > 10**9 else -1
        except OSError:
            return  # folded just now, or never there

    def _read_new(self, file: GrowingFile) -> None:
        if file.ended:
            return
        for chunk in file.read():
            recent = self._recents.get(chunk.stream)
            if recent is None and len(self._recents) < _MOST_PROCESSES:
                recent = self._recents[chunk.stream] = Recent(file)
            if recent is not None:
                recent.take(chunk)
        self._written_s = max(self._written_s or 0.0, file.written_s)

    def _forget_the_gone(self) -> None:
        """Workers that ended, and those whose end nobody saw: epochs would add more and more of them."""
        now_ns = time.perf_counter_ns()
        for stream, recent in list(self._recents.items()):
            who = recent.who
            if who is None or not who.worker or who.host != self._host:
                continue
            ended = who.end_ns is not None and who.end_ns < now_ns - WINDOW_S * 1e9
            silent = recent.file.written_s < time.time() - _SILENT_S
            if ended or (silent and not _exists(who.pid)):
                del self._recents[stream]
                recent.file.ended = recent.file.path != self.path

    def _tail(self) -> Tail:
        launch = next((r.launch for r in self._recents.values() if r.launch is not None), None)
        processes = [p for r in self._recents.values() if (p := r.process()) is not None]
        delivered = {
            (p.host, p.pid): dict(r.delivered)
            for r in self._recents.values()
            if (p := r.who) is not None and r.delivered
        }
        silent_s = None if self._written_s is None else max(0.0, time.time() - self._written_s)
        # Who started it may be on another machine, or be gone while training goes on and writes.
        writes = silent_s is not None and silent_s < _SILENT_S
        return Tail(
            run=Run(
                path=str(self.path),
                command=tuple(launch["command"]) if launch else (),
                kind=launch["kind"] if launch else "run",
                started_at=launch["started_at"] if launch else 0.0,
                processes=tuple(sorted(processes, key=lambda p: (p.rank is None, p.rank or 0, p.start_ns))),
                exit_code=None if self._result is None else self._result.get("exit_code"),
                live=self._result is None and (writes or (launch is not None and launcher_alive(launch))),
                lost=(),
            ),
            delivered=delivered,
            window_s=WINDOW_S,
            silent_s=silent_s,
        )


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's, but there
    return True


def newest_running(folder: Path) -> Path | None:
    """The run in a folder that was started last of those being recorded now."""
    running = []
    for parts in folder.glob(f"*{f.SUFFIX}{f.PARTS_SUFFIX}"):
        path = parts.with_name(parts.name.removesuffix(f.PARTS_SUFFIX))
        launch = launch_of(path)
        if launch is not None and launcher_alive(launch):
            running.append((launch["started_at"], path))
    return max(running)[1] if running else None
