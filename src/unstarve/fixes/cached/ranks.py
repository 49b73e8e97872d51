"""How the processes of one training on one machine come to share a region.

torchrun and its like start ranks that have no common handle, only a common environment. The first to arrive
binds a name in the kernel's list of abstract sockets, makes the region and listens; it is the owner. Those
that come later connect, learn from the kernel which process the owner is, and open the owner's descriptor
through /proc. No thread serves anybody and nothing is written anywhere, so a process that is killed leaves
nothing behind: its name is free at once, and the memory goes with the last process that has it mapped.

Where this is not possible (not Linux, /proc closed, another user's name) each rank has a region of its own.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import struct
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path

from unstarve.fixes.cached.region import Region

_JOB_NAMES = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID")
_LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_LOCAL_SIZES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE")
_RETRY_S = 0.01
_TRIES = 100
_CONNECT_S = 1.0

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


def shared(key: str, make: Callable[[], Region]) -> Region:
    """Return the region that all ranks of this training share under a key.

    The first of them makes it by calling `make`. What that raises is raised, and the name is free again.
    """
    label = _label(key)
    tries_left = _TRIES
    while tries_left:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            listener.bind(f"\0{label}")
        except OSError:
            listener.close()
        else:
            return _own(label, listener, make)
        try:
            fd = _owners_descriptor(label)
        except ConnectionRefusedError:  # not ready yet, or gone since
            time.sleep(_RETRY_S)
        except FileNotFoundError:  # it went while we looked; or a child that it left behind has its socket
            tries_left -= 1
            time.sleep(_RETRY_S)
        except OSError:
            break
        else:
            return Region(fd, on_disk=not _is_memory(fd))
    return make()


def _label(key: str) -> str:
    job = [f"{name}={os.environ.get(name)}" for name in _JOB_NAMES]
    return "unstarve-" + hashlib.sha256("\n".join([key, str(os.getuid()), *job]).encode()).hexdigest()[:32]


def _own(label: str, listener: socket.socket, make: Callable[[], Region]) -> Region:
    try:
        region = make()
        # An empty memory file whose name says which descriptor is meant.
        sign = os.memfd_create(f"{label}-{region.fd}", os.MFD_CLOEXEC)
        weakref.finalize(region, os.close, sign)
        listener.listen(4096)  # nobody is ever accepted: to be connected is enough
    except BaseException:  # also Ctrl-C: the socket would be left open
        listener.close()
        raise
    _listeners.add(listener)
    weakref.finalize(region, listener.close)
    return region


def _owners_descriptor(label: str) -> int:
    """Open the owner's region. Raises the OSError that says why we cannot."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
        connection.settimeout(_CONNECT_S)
        connection.connect(f"\0{label}")
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", credentials)
        if uid != os.getuid() or pid == 0:  # 0: in another container
            raise PermissionError(f"the name {label} is taken by process {pid} of user {uid}")
        return _open_signed(pid, label)


def _open_signed(pid: int, label: str) -> int:
    """Find the sign among the descriptors of a process, ``/memfd:LABEL-17 (deleted)``, and open number 17."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        sign = re.fullmatch(rf"/memfd:{label}-(\d+) \(deleted\)", _target(link))
        if sign is not None:
            return os.open(f"/proc/{pid}/fd/{sign[1]}", os.O_RDWR | os.O_CLOEXEC)
    raise FileNotFoundError(f"process {pid} has no region {label}")


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
