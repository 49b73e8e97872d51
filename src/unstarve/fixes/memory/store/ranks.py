"""How the processes of one training on one machine come to share a region.

torchrun and its like start ranks that have no common handle, only a common environment. The first to arrive
binds a name in the kernel's list of abstract sockets, listens and makes the region; it is the owner. Those
that come later connect, learn from the kernel which process of which user the owner is, and open the owner's
descriptor through /proc. No thread serves anybody and nothing is written anywhere, so a killed process leaves
nothing behind: its name is free at once, and the memory goes with the last process that has it mapped.

The owner shows its state by an empty memory file: LABEL-making while it makes the region, which may take as
long as it likes, then LABEL-17 where 17 is the region's descriptor. A process that holds the name and shows
neither, or is stopped while it makes the region, is waited for a few seconds.

Where ranks cannot share (/proc closed, the name held by somebody else) each warns and makes its own region.
"""

from __future__ import annotations

import hashlib
import os
import re
import select
import socket
import stat
import struct
import sys
import time
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path

from unstarve.fixes.memory.region import Region
from unstarve.fixes.memory.store import patience
from unstarve.fixes.memory.store.patience import Patience

_JOB_NAMES = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID")
_LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_LOCAL_SIZES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE")
_MAKING = "making"
_WHY_NOT = ("does not", "is stopped")

_listeners: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def local_rank() -> int | None:
    """Return which of a training's processes on this machine we are; None where there is one only."""
    if any(os.environ.get(name) == "1" for name in _LOCAL_SIZES) or sys.platform != "linux":
        return None
    for name in _LOCAL_RANKS:
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    return None


def local_ranks() -> int:
    """Return how many processes of this training there are on this machine, as far as is known."""
    for name in _LOCAL_SIZES:
        if os.environ.get(name, "").isdecimal():
            return max(1, int(os.environ[name]))
    return 1


def shared(key: str, make: Callable[[], Region]) -> Region | None:
    """Return the region that all ranks of this training share under a key; None where they cannot.

    Warns where they cannot. The first of them makes the region by calling `make`. What that raises is raised,
    and the name is free again.
    """
    label = _label(key)
    waiting = Patience(patience.ANSWER_S)
    owners_gone = 0
    while True:
        listener = _bound(label)
        if listener is not None:
            return _own(label, listener, make)
        try:
            return _region_of_owner(label)
        except ConnectionResetError:  # it went while we waited for it: the name is free
            owners_gone += 1
        except (ConnectionRefusedError, BlockingIOError, FileNotFoundError):
            pass  # it does not listen yet, or a child that it left behind has its socket
        except OSError as error:
            warn_apart(str(error))
            return None
        if waiting.is_over(owners_gone):
            warn_apart("another process has taken the name under which ranks meet, and does not answer")
            return None
        time.sleep(patience.POLL_S)


def warn_apart(reason: str) -> None:
    """Say why this rank does not share what the others have."""
    warnings.warn(f"this rank fills a cache of its own instead of sharing one: {reason}", stacklevel=6)


def _label(key: str) -> str:
    job = "\n".join([key, *(f"{name}={os.environ.get(name)}" for name in _JOB_NAMES)])
    return f"unstarve-{os.geteuid()}-{hashlib.sha256(job.encode()).hexdigest()[:32]}"


def _bound(label: str) -> socket.socket | None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.bind(f"\0{label}")
    except OSError:
        listener.close()
        return None
    return listener


def _own(label: str, listener: socket.socket, make: Callable[[], Region]) -> Region:
    making = os.memfd_create(f"{label}-{_MAKING}", os.MFD_CLOEXEC)
    _listeners.add(listener)
    try:
        listener.listen(4096)  # nobody is ever accepted: to be connected is enough
        region = make()
        sign = os.memfd_create(f"{label}-{region.fd}", os.MFD_CLOEXEC)
        weakref.finalize(region, os.close, sign)
    except BaseException:  # also Ctrl-C: the socket would be left open
        listener.close()
        raise
    finally:
        os.close(making)
    weakref.finalize(region, listener.close)
    return region


def _region_of_owner(label: str) -> Region:
    """Wait while the owner makes its region, and open it.

    Raises ConnectionResetError where it went meanwhile, ConnectionRefusedError, BlockingIOError or
    FileNotFoundError where there is none yet or no longer, and any other OSError where waiting is of no use.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
        connection.setblocking(False)
        connection.connect(f"\0{label}")
        pid = _trusted_owner(connection)
        waiting = Patience(patience.ANSWER_S)
        seen_making = 0
        while not _is_hung_up(connection):
            try:
                sign = _sign_of(pid, label)
                if sign == _MAKING:
                    seen_making += not _is_stopped(pid)
                elif sign is not None:
                    return _opened(pid, int(sign))
            except OSError:
                if _is_hung_up(connection):
                    break
                raise
            if waiting.is_over(seen_making):
                raise TimeoutError(f"process {pid}, which should make it, {_WHY_NOT[sign == _MAKING]}")
    raise ConnectionResetError if seen_making else ConnectionRefusedError


def _trusted_owner(connection: socket.socket) -> int:
    """Return the process that listens. Raises PermissionError where it is not one of ours."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", credentials)
    if uid != os.geteuid() or pid == 0:  # 0: in another container
        whose = f"of user {uid}" if pid else "in another container"
        raise PermissionError(f"a process {whose} has taken the name under which ranks meet")
    return int(pid)


def _sign_of(pid: int, label: str) -> str | None:
    """Read the sign among the descriptors of a process, ``/memfd:LABEL-17 (deleted)``; None without one."""
    signs = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        sign = re.fullmatch(rf"/memfd:{label}-(\d+|{_MAKING}) \(deleted\)", _target(link))
        if sign is not None:
            signs.append(sign[1])
    return min(signs, default=None)  # a number, where it has just been made


def _opened(pid: int, number: int) -> Region:
    fd = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_size == 0:
        os.close(fd)
        raise OSError(f"what process {pid} shares is no region")
    return Region(fd, on_disk=not _is_memory(fd))


def _is_hung_up(connection: socket.socket) -> bool:
    """Wait for a moment, and say whether the owner is gone."""
    events = select.poll()
    events.register(connection, select.POLLHUP)
    return bool(events.poll(patience.POLL_S * 1000))


def _is_stopped(pid: int) -> bool:
    """``1234 (python) T 1 …``: by a signal or a debugger."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:  # closed since the folder was read
        return ""


def _is_memory(fd: int) -> bool:
    return _target(Path(f"/proc/self/fd/{fd}")).startswith("/memfd:")


def _close_listeners() -> None:
    """In a forked child: the name is the parent's alone, and must be free when the parent is gone."""
    for listener in list(_listeners):
        listener.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_listeners)
