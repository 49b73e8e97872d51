"""A look at processes that do not get on: where each of them is, what it waits for, and who could help it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """What a process that makes batches was doing."""

    IDLE = "idle"
    """It has no batch to make."""
    FETCH = "fetch"
    COLLATE = "collate"
    SEND = "send"
    START = "start"
    """It has not asked for its first batch: it runs ``worker_init_fn``, or what comes before it."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a Python stack."""

    file: str
    """As the user would write it."""
    line: int
    function: str
    source: str = ""
    """The line itself; empty where its file cannot be read."""
    users: bool = False
    """It is neither the standard library's, nor an installed package's, nor unstarve's."""

    @property
    def where(self) -> str:
        """``train.py:31``."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class KernelWait:
    """What a thread waits for, as the kernel says."""

    call: str | None
    """The system call: ``futex``; None if it makes none, or that cannot be read."""
    words: str
    """``waits for a lock``, ``reads from the pipe …``, ``computes``."""
    file: str | None = None
    """What the call is about: a path, ``pipe:[81]``, ``127.0.0.1:8080``."""
    holders: tuple[str, ...] = ()
    """Who holds it, where that is known: ``pid 4712 (python server.py)``."""


@dataclass(frozen=True, slots=True)
class Task:
    """The batch that a process is making."""

    stage: Stage
    number: int | None = None
    """torch's number of the batch inside its epoch."""
    sample: int | None = None
    """The index that it fetches at the moment; None where that is not known."""
    indices: tuple[int, ...] = ()
    """The first indices of the batch; empty where they are not numbers."""
    count: int = 0
    """Samples of the batch."""
    since_s: float | None = None
    """Seconds since it got the indices."""


@dataclass(frozen=True, slots=True)
class StuckThread:
    """Another thread of a process than its main one."""

    frames: tuple[Frame, ...]
    makes_batches: bool = False
    """It belongs to an engine of unstarve."""


@dataclass(frozen=True, slots=True)
class ProcessPicture:
    """One process at one moment."""

    pid: int
    worker: int | None
    """Number of the worker; None in a process that is none."""
    state: str
    """The kernel's letter: ``R`` runs, ``S`` waits, ``D`` for a disk, ``T`` is stopped, ``Z`` has ended."""
    frames: tuple[Frame, ...] = ()
    """The stack of its main thread, the innermost frame first; empty where it could not be read."""
    no_frames: str | None = None
    """Why there is no stack."""
    wait: KernelWait | None = None
    task: Task | None = None
    threads: tuple[StuckThread, ...] = ()
    """Other threads that run code of the user or wait in it."""
    other_threads: int | None = None
    """Other threads with a Python stack, without those of unstarve; None where that is not known."""
    command: str = ""
    known: bool = True
    """unstarve records it, so that its role is known."""
    files: tuple[str, ...] = ()
    """Regular files that it has open; only looked up for a process that unstarve does not record."""

    @property
    def place(self) -> Frame | None:
        """The user's line that it, or a thread that makes its batches, is in; else the innermost line."""
        makers = [one.frames for one in self.threads if one.makes_batches]
        stacks = [self.frames] if self.task is not None or not makers else [*makers, self.frames]
        users = (one for frames in stacks for one in frames if one.users)
        return next(users, self.frames[0] if self.frames else None)

    @property
    def is_idle(self) -> bool:
        """Whether it is a worker that waits for something to do."""
        return self.task is not None and self.task.stage is Stage.IDLE and self.worker is not None


@dataclass(frozen=True, slots=True)
class Picture:
    """A training process and its workers at one moment."""

    training: ProcessPicture
    workers: tuple[ProcessPicture, ...] = ()
    """Of the loader that training waits for, in their order; of all loaders if it waits for none."""
    loader: str | None = None
    """Name of the loader that training waits for; None if it does not wait."""
    where: str | None = None
    """``file:line`` that created it."""
    begins: bool = False
    """It waits inside ``iter(loader)``."""
    epoch: int | None = None
    batch: int | None = None
    """Position of the batch inside its epoch, from 0."""
    waited_s: float | None = None

    @property
    def culprit(self) -> ProcessPicture:
        """The process that everything waits for: the worker that makes the batch, or training itself."""
        busy = [one for one in self.workers if not one.is_idle and one.state != "Z"]
        if not busy or not self.training.known:
            return self.training
        mine = [one for one in busy if one.task is not None and one.task.number == self.batch]
        return min(mine or busy, key=_turn)


def _turn(one: ProcessPicture) -> int:
    return -1 if one.task is None or one.task.number is None else one.task.number


@dataclass(frozen=True, slots=True)
class Inspection:
    """What `unstarve inspect` found."""

    source: str
    """Who showed the stacks: ``unstarve``, ``py-spy``, or ``/proc``: there are none."""
    pictures: tuple[Picture, ...]
    """One of each training process; of any other process, one with its children as workers."""
    note: str | None = None
    """What is missing, and what would be needed to see it."""


@dataclass(frozen=True, slots=True)
class Hang:
    """A wait for a batch that lasted longer than ``--hang-after`` or the loader's timeout."""

    loader: str
    waited_s: float
    """When it was last looked at, or when it was over."""
    ended: str
    """``resolved``, ``raised``, ``timeout``, or ``open``: the command ended first."""
    process: str
    """Who was stuck: ``worker 2``, ``the training process``."""
    pid: int
    doing: str
    """``fetching sample 131 of batch 4``; empty for a process that makes no batch."""
    wait: str
    """``sleeps (clock_nanosleep)``."""
    source: str
    """The user's line that it was in; empty where that is not known."""
    text: str
    """The whole picture, as it was printed."""
    where: str | None = None
    epoch: int | None = None
    batch: int | None = None
    file: str | None = None
    line: int | None = None
    timeout_s: float | None = None
    """The loader's own ``timeout``, if that ended the wait."""

    @property
    def place(self) -> str | None:
        """``train.py:31``."""
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class WorkerDeath:
    """A worker that died and took training with it."""

    pid: int
    loader: str
    doing: str
    """``fetching sample 131 of batch 4``; empty where that is not known."""
    source: str
    worker: int | None = None
    signal: str | None = None
    """``SIGKILL``; None if no signal ended it, or that is not known."""
    exit_code: int | None = None
    oom_kills: int | None = None
    """Processes that the kernel killed for lack of memory during the run; None where that is not counted."""
    file: str | None = None
    """Where it was when the signal came, with `line` and `source`; None where it left no stack."""
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Breakage:
    """What broke during a run."""

    hangs: tuple[Hang, ...] = ()
    deaths: tuple[WorkerDeath, ...] = ()
