"""Put together what pages, stacks and the kernel say: a `Picture` of a training process and its workers."""

from __future__ import annotations

import contextlib
import linecache
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from unstarve.collect.stuck import stack_dump
from unstarve.collect.stuck import state_page as p
from unstarve.collect.stuck.kernel_wait import COMPUTES, kernel_wait
from unstarve.collect.stuck.open_files import command_of
from unstarve.collect.stuck.stack_dump import Line
from unstarve.collect.stuck.state_page import SeenPage, state_of, worker_pages
from unstarve.model.stuck import Frame, KernelWait, Picture, ProcessPicture, Stage, StuckThread

_LOOKS, _LOOK_AGAIN_S = 5, 0.02
_PACKAGE = str(Path(__file__).parents[2])
_ENGINES = f"{_PACKAGE}/fixes/loader/engines/"
_DEMO = f"{_PACKAGE}/demo/"
_SENDER = "/multiprocessing/queues.py"
_LOADER = "/torch/utils/data/dataloader.py"
_WORKER_LOOP = "/torch/utils/data/_utils/worker.py"
_PLUMBING = ("/torch/utils/data/", "/multiprocessing/", "/threading.py", "/torch/utils/_contextlib.py")
_WAITING = {
    ("launch/wrappers.py", "beginning"),
    ("launch/wrappers.py", "__next__"),
    ("collect/tap.py", "__next__"),
    ("collect/fetching.py", "fetch"),
}
"""Functions of unstarve that are on the stack of a training process exactly while it waits for a batch."""


class Wait(NamedTuple):
    """A wait of a training process."""

    loader: int | None
    """None: it is not known which one, or training is inside ``iter(loader)``."""
    epoch: int | None
    batch: int | None
    since_ns: int


def wait_of(page: SeenPage) -> Wait | None:
    """The wait that the page of a training process tells; None if it does not wait."""
    words = page.words
    if words[p.BEGINS] > 0:
        return Wait(None, None, None, words[p.BEGINS])
    if words[p.LOADER] >= 0:
        return Wait(words[p.LOADER], words[p.EPOCH], words[p.BATCH], words[p.SINCE])
    return None


def look_at(training: SeenPage, wait: Wait | None) -> Picture:
    """A picture of a training process and of the workers of the loader that it waits for."""
    now_ns = time.perf_counter_ns()
    loader = None if wait is None else wait.loader
    facts = {} if loader is None else training.loaders.get(loader, {})
    # An iterable of another kind may have loaders, and so workers, inside.
    crew = None if facts.get("workers") is None else facts.get("pids", ())
    workers = [
        page
        for page in worker_pages(training.path.parent)
        if page.words[p.PARENT] == training.pid and page.alive and (crew is None or page.pid in crew)
    ]
    workers.sort(key=lambda page: (page.worker or 0, page.pid))
    pictures = pictures_of([training, *workers], now_ns)
    return Picture(
        training=_waiting_for(workers, pictures[0]),
        workers=tuple(pictures[1:]),
        loader=None if wait is None else facts.get("name", "the loader"),
        where=facts.get("where"),
        begins=training.words[p.BEGINS] > 0,
        epoch=None if wait is None else wait.epoch,
        batch=None if wait is None else wait.batch,
        waited_s=None if wait is None else max(now_ns - wait.since_ns, 0) / 1e9,
    )


def _waiting_for(workers: Sequence[SeenPage], training: ProcessPicture) -> ProcessPicture:
    """The same picture, saying plainly that training waits at the pipe that its workers write to."""
    wait = training.wait
    if wait is None or not any(
        f"process {page.pid} " in f"{one} " for page in workers for one in wait.holders
    ):
        return training
    return replace(training, wait=KernelWait(wait.call, "waits for its workers", wait.file))


def pictures_of(pages: Sequence[SeenPage], now_ns: int) -> list[ProcessPicture]:
    """One picture of each of these processes."""
    waits = _waits([page.pid for page in pages])  # before the signal, which interrupts system calls
    stacks = stack_dump.read(pages, stack_dump.ask(pages))
    return [_picture(page, waits[page.pid], stacks.get(page.pid, {}), now_ns) for page in pages]


def _waits(pids: Sequence[int]) -> dict[int, KernelWait | None]:
    """What these processes wait for. One that runs may be about to wait again: it is looked at once more."""
    waits = {pid: kernel_wait(pid) for pid in pids}
    for _ in range(_LOOKS):
        running = [pid for pid, wait in waits.items() if wait is not None and wait.words == COMPUTES]
        if not running:
            break
        time.sleep(_LOOK_AGAIN_S)
        waits |= {pid: kernel_wait(pid) for pid in running}
    return waits


def waits_by_stack(training: SeenPage) -> bool:
    """Whether the stack of a training process shows that it waits for a batch, whatever its page says."""
    stacks = stack_dump.read([training], stack_dump.ask([training])).get(training.pid, {})
    return any(_is_waiting(file, function) for file, _, function in stacks.get(training.words[p.THREAD], []))


def _is_waiting(file: str, function: str) -> bool:
    return file.startswith(_PACKAGE) and (file[len(_PACKAGE) + 1 :], function) in _WAITING


def _picture(
    page: SeenPage, wait: KernelWait | None, stacks: dict[int, list[Line]], now_ns: int
) -> ProcessPicture:
    main = stacks.get(page.words[p.THREAD], [])
    others = [
        lines for ident, lines in stacks.items() if ident != page.words[p.THREAD] and not _is_ours(lines)
    ]
    state = state_of(page.pid)
    task = page.task(now_ns) if page.worker is not None or page.stage is not Stage.IDLE else None
    return ProcessPicture(
        pid=page.pid,
        worker=page.worker,
        state=state,
        frames=tuple(frames_of(_without_waiting(_inside_worker(main)), page.pid)),
        no_frames=None if main else _why_no_frames(state, page),
        wait=wait,
        task=task,
        threads=tuple(
            StuckThread(frames, any(file.startswith(_ENGINES) for file, _, _ in lines))
            for lines in others
            if (frames := tuple(frames_of(lines, page.pid))) and any(one.users for one in frames)
        ),
        other_threads=len(others) if main else None,
        command=command_of(page.pid),
    )


def _is_ours(lines: list[Line]) -> bool:
    """Whether a thread is unstarve's, or the one that sends batches: neither holds a lock of the user."""
    files = [file for file, _, _ in lines]
    return all(file.startswith(_PACKAGE) for file in files) or any(file.endswith(_SENDER) for file in files)


def _why_no_frames(state: str, page: SeenPage) -> str:
    if state in "Tt":
        return "it is stopped, so it cannot show its stack"
    if state == "D":
        return "it waits in the kernel and cannot answer before that is over"
    if state in "ZX":
        return "it has ended"
    return "it did not answer" if page.words[p.SIGNAL] else "it has no free signal to be asked by"


def _inside_worker(lines: list[Line]) -> list[Line]:
    """The frames inside torch's worker loop: frames further out are from before the fork."""
    for place, (file, _, _) in enumerate(lines):
        if file.endswith(_WORKER_LOOP):
            return lines[:place]
    return lines


def _without_waiting(lines: list[Line]) -> list[Line]:
    """The frames of a training process without those of torch's and unstarve's own waiting."""
    outer = max((at for at, (file, _, _) in enumerate(lines) if file.endswith(_LOADER)), default=-1)
    inside = lines[: outer + 1]
    return lines[outer + 1 :] if not any(_is_users(file) for file, _, _ in inside) else lines


def _is_users(file: str) -> bool:
    ours = file.startswith(_PACKAGE) and not file.startswith(_DEMO)
    return (
        not ours and not file.startswith("<") and "/site-packages/" not in file and "/lib/python3" not in file
    )


def frames_of(lines: Iterable[Line], pid: int | None = None) -> list[Frame]:
    """The frames of a stack that a user can read: without unstarve's, torch's loader and plumbing."""
    found: list[Frame] = []
    for file, line, function in lines:
        users = _is_users(file)
        if not users and (file.startswith((_PACKAGE, "<")) or file.endswith(_LOADER)):
            continue
        if not users and found and any(part in file for part in _PLUMBING):
            continue
        source = linecache.getline(_path(file, pid), line).strip()
        found.append(Frame(_short(file, pid), line, function, source, users))
    return found


def _path(file: str, pid: int | None) -> str:
    return file if file.startswith("/") or pid is None else f"/proc/{pid}/cwd/{file}"


def _short(file: str, pid: int | None) -> str:
    """A path as people write it: relative to the process's folder, or from the package on."""
    for part in ("/site-packages/", "/lib/python3"):
        if part in file:
            rest = file.rpartition(part)[2]
            return rest if part == "/site-packages/" else rest.partition("/")[2]
    with contextlib.suppress(OSError, ValueError):
        return str(Path(file).relative_to(Path(f"/proc/{pid}/cwd" if pid else ".").resolve()))
    return file
