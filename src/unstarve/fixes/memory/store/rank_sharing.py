"""How the ranks of one training on one machine share a region.

torchrun and similar launchers start ranks that share no handle, only an environment. The first rank to arrive
is the owner: it binds an abstract socket name, listens and makes the region. Later ranks connect, ask the
kernel for the owner's process and user, and open the owner's descriptor through /proc. No thread serves
requests and nothing is written to disk, so a killed process leaves nothing behind: its name is free at once,
and the memory is freed with the last process that maps it.

The owner shows its state by the name of an empty memory file: LABEL-making while it makes the region, however
long that takes, then LABEL-17, where 17 is the region's descriptor. Other ranks wait only a few seconds for
an owner that shows neither or is stopped.

If ranks cannot share (no access to /proc, name taken by another program), each warns and makes its own
region.
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

from unstarve.fixes.memory.region import SharedRegion
from unstarve.fixes.memory.store import process_locks
from unstarve.fixes.memory.store.process_locks import StallTimer

_JOB_NAMES = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID")
_LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_LOCAL_SIZES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE")
_MAKING = "making"
_WHY_NOT = ("does not", "is stopped")

_listeners: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def local_rank() -> int | None:
    """Return the rank of this process on this machine; None if it is the only one."""
    if any(os.environ.get(name) == "1" for name in _LOCAL_SIZES) or sys.platform != "linux":
        return None
    for name in _LOCAL_RANKS:
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    return None


def local_ranks() -> int:
    """Return how many ranks this training has on this machine; 1 if unknown."""
    for name in _LOCAL_SIZES:
        if os.environ.get(name, "").isdecimal():
            return max(1, int(os.environ[name]))
    return 1


def shared(key: str, make: Callable[[], SharedRegion]) -> SharedRegion | None:
    """Return the region that all ranks of this training share under a key; None if they cannot share.

    Warns if they cannot. The first rank makes the region by calling `make`. If that raises, the name is free
    again.
    """
    label = _label(key)
    timer = StallTimer(process_locks.ANSWER_S)
    owners_gone = 0
    while True:
        listener = _bound(label)
        if listener is not None:
            return _own(label, listener, make)
        try:
            return _region_of_owner(label)
        except ConnectionResetError:  # the owner ended while we waited: the name is free
            owners_gone += 1
        except (ConnectionRefusedError, BlockingIOError, FileNotFoundError):
            pass  # it does not listen yet, or an orphaned child of it holds the socket
        except OSError as error:
            warn_not_shared(str(error))
            return None
        if timer.is_expired(owners_gone):
            warn_not_shared("another process holds the name under which ranks meet and does not answer")
            return None
        time.sleep(process_locks.POLL_S)


def warn_not_shared(reason: str) -> None:
    """Warn that this rank does not share the other ranks' cache."""
    warnings.warn(f"this rank fills its own cache instead of sharing one: {reason}", stacklevel=6)


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


def _own(label: str, listener: socket.socket, make: Callable[[], SharedRegion]) -> SharedRegion:
    making = os.memfd_create(f"{label}-{_MAKING}", os.MFD_CLOEXEC)
    _listeners.add(listener)
    try:
        listener.listen(4096)  # connections are never accepted: being connected is enough
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


def _region_of_owner(label: str) -> SharedRegion:
    """Wait while the owner makes its region, and open it.

    Raises ConnectionResetError if the owner ended meanwhile, ConnectionRefusedError, BlockingIOError or
    FileNotFoundError if there is none yet or no longer, and any other OSError if waiting is pointless.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
        connection.setblocking(False)
        connection.connect(f"\0{label}")
        pid = _trusted_owner(connection)
        timer = StallTimer(process_locks.ANSWER_S)
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
            if timer.is_expired(seen_making):
                raise TimeoutError(
                    f"process {pid}, which should make the shared cache, {_WHY_NOT[sign == _MAKING]}"
                )
    raise ConnectionResetError if seen_making else ConnectionRefusedError


def _trusted_owner(connection: socket.socket) -> int:
    """Return the process that listens. Raises PermissionError if it belongs to another user or container."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", credentials)
    if uid != os.geteuid() or pid == 0:  # 0: in another container
        whose = f"of user {uid}" if pid else "in another container"
        raise PermissionError(f"a process {whose} holds the name under which ranks meet")
    return int(pid)


def _sign_of(pid: int, label: str) -> str | None:
    """Find the owner's state among its descriptors, ``/memfd:LABEL-17 (deleted)``; None if it shows none."""
    signs = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        sign = re.fullmatch(rf"/memfd:{label}-(\d+|{_MAKING}) \(deleted\)", _target(link))
        if sign is not None:
            signs.append(sign[1])
    return min(signs, default=None)  # a number sorts before "making": both exist for a moment


def _opened(pid: int, number: int) -> SharedRegion:
    fd = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_size == 0:
        os.close(fd)
        raise OSError(f"process {pid} shares something that is not a cache")
    return SharedRegion(fd, on_disk=not _is_memory(fd))


def _is_hung_up(connection: socket.socket) -> bool:
    """Wait a moment and return whether the owner is gone."""
    events = select.poll()
    events.register(connection, select.POLLHUP)
    return bool(events.poll(process_locks.POLL_S * 1000))


def _is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger has stopped the process: ``1234 (python) T 1 …``."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:  # closed since the folder was read
        return ""


def _is_memory(fd: int) -> bool:
    return _target(Path(f"/proc/self/fd/{fd}")).startswith("/memfd:")


def _close_listeners() -> None:
    """In a forked child: the name belongs to the parent and must be free when the parent ends."""
    for listener in list(_listeners):
        listener.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_listeners)
