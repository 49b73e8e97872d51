"""`unstarve inspect`: find out how a process can be looked at, and look at it.

A process that `unstarve run` started has its settings, and so the folder of the pages, in its environment.
Any other process is read by py-spy, if that is installed and allowed; else only the kernel can be asked.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil

from unstarve.collect.stuck import state_page as p
from unstarve.collect.stuck.kernel_wait import kernel_wait
from unstarve.collect.stuck.look import frames_of, look_at, wait_of
from unstarve.collect.stuck.open_files import command_of
from unstarve.collect.stuck.state_page import SeenPage, state_of, training_pages, worker_pages
from unstarve.errors import ProcessError
from unstarve.model.launch_settings import VARIABLE
from unstarve.model.stuck import Frame, Inspection, Picture, ProcessPicture, StuckThread

_SPY_S = 30.0
_MOST_CHILDREN = 64
_NO_SPY = (
    "There are no Python stacks: unstarve run did not start this process. "
    "Install py-spy (pip install py-spy) and try again."
)


def inspect_process(pid: int) -> Inspection:
    """Look at a training process and its workers. Raises `ProcessError` if that is impossible."""
    try:
        process = psutil.Process(pid)
        owner = process.uids().real
    except psutil.NoSuchProcess:
        raise ProcessError(f"there is no process {pid}") from None
    if os.geteuid() not in (0, owner):
        name = process.username()
        raise ProcessError(f"process {pid} belongs to {name}; run unstarve as {name} or as root")
    pages = _pages_for(process)
    if pages:
        return Inspection("unstarve", tuple(look_at(page, wait_of(page)) for page in pages))
    return _from_outside(process)


def _pages_for(process: psutil.Process) -> list[SeenPage]:
    """The pages of the training processes that a process is, belongs to, or has started."""
    family = {process.pid, *(child.pid for child in _children(process))}
    folders = {folder for pid in sorted(family) if (folder := _state_of_run(pid)) is not None}
    trainings = [page for folder in folders for page in training_pages(folder) if page.alive]
    parents = {
        w.words[p.PARENT]
        for folder in folders
        for w in worker_pages(folder)
        if w.pid == process.pid and w.alive
    }
    own = [page for page in trainings if page.pid in parents | {process.pid}]
    return own or [page for page in trainings if page.pid in family]


def _state_of_run(pid: int) -> Path | None:
    """The folder of the pages of the run that a process belongs to; None if unstarve run did not start it."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        found = next(one for one in variables if one.startswith(f"{VARIABLE}=".encode()))
        return Path(json.loads(found.partition(b"=")[2])["state"])
    except (OSError, StopIteration, ValueError, KeyError, TypeError):
        return None


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)[:_MOST_CHILDREN]
    except psutil.Error:
        return []


# --- processes that unstarve did not start ------------------------------------------------------------------


def _from_outside(process: psutil.Process) -> Inspection:
    spy = shutil.which("py-spy")
    note = None if spy is not None else _NO_SPY
    seen = []
    for one in (process, *_children(process)):
        threads, why_not = ([], None) if spy is None else _spied(spy, one.pid)
        note = note or why_not
        seen.append(_picture(one.pid, threads))
    source = "py-spy" if any(one.frames for one in seen) else "/proc"
    return Inspection(source, (Picture(seen[0], tuple(seen[1:])),), note)


def _spied(spy: str, pid: int) -> tuple[list[dict[str, Any]], str | None]:
    """The threads of a process as py-spy sees them, and why it sees none."""
    if "python" not in command_of(pid):
        return [], None
    try:
        asked = [spy, "dump", "--json", "--pid", str(pid)]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_SPY_S, check=False)
        if done.returncode == 0:
            return [one for one in json.loads(done.stdout) if isinstance(one, dict)], None
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        said = str(error)
    return [], (
        f"py-spy could not read process {pid} ({said}). It needs the right to trace it: run unstarve as "
        "root, or allow it with sysctl kernel.yama.ptrace_scope=0."
    )


def _picture(pid: int, threads: Iterable[dict[str, Any]]) -> ProcessPicture:
    main: tuple[Frame, ...] = ()
    others = []
    for one in threads:
        lines = [
            (str(frame.get("filename", "")), int(frame.get("line", 0)), str(frame.get("name", "")))
            for frame in one.get("frames", ())
        ]
        frames = tuple(frames_of(lines, pid))
        if one.get("os_thread_id") == pid or one.get("thread_name") == "MainThread":
            main = frames
        elif any(frame.users for frame in frames):
            others.append(StuckThread(frames))
    return ProcessPicture(
        pid=pid,
        worker=None,
        state=state_of(pid),
        frames=main,
        wait=kernel_wait(pid),
        threads=tuple(others),
        command=command_of(pid),
        known=False,
        files=tuple(_files(pid)),
    )


def _files(pid: int) -> Iterator[str]:
    try:
        yield from sorted({one.path for one in psutil.Process(pid).open_files()})
    except psutil.Error:
        return
