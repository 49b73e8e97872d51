"""What a thread waits for, by what the kernel shows of it.

    /proc/PID/task/TID/syscall   "202 0x7f… 0x189 0x0 …": the system call and its arguments; "running"
    /proc/PID/task/TID/stat      "27 (python) S 1 …": its state
    /proc/PID/mem                what an argument points to: descriptors of a poll, the path of an open

All but the state is forbidden where the kernel does not let us trace the process; then less is said.
"""

from __future__ import annotations

import os
import platform
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from unstarve.collect.stuck.open_files import command_of, lock_holders, target_of
from unstarve.collect.stuck.state_page import stat_of
from unstarve.model.stuck import KernelWait

COMPUTES = "computes"
_MOST_FDS = 1024
_MOST_NAMED = 4
_POLLED = struct.Struct("<ihh")
_AT_FDCWD = -100
_FUTEX_PRIVATE = 128
_LOCK_COMMANDS = (7, 38)
"""Of fcntl: wait for a POSIX lock, or for one of an open file."""
_WALL_PID = -1
_PATH_BYTES = 4096

_X86 = """
read 0 write 1 open 2 stat 4 lstat 6 poll 7 ioctl 16 pread64 17 readv 19 select 23 pause 34 nanosleep 35
connect 42 accept 43 sendto 44 recvfrom 45 sendmsg 46 recvmsg 47 wait4 61 semop 65 fcntl 72 flock 73 fsync 74
fdatasync 75 futex 202 getdents64 217 semtimedop 220 clock_nanosleep 230 epoll_wait 232 waitid 247 openat 257
newfstatat 262 pselect6 270 ppoll 271 epoll_pwait 281 accept4 288 preadv 295 preadv2 327 statx 332
io_uring_enter 426
"""
_ARM = """
epoll_pwait 22 fcntl 25 ioctl 29 flock 32 openat 56 getdents64 61 read 63 write 64 readv 65 pread64 67
preadv 69 pselect6 72 ppoll 73 newfstatat 79 fsync 82 fdatasync 83 waitid 95 futex 98 nanosleep 101
clock_nanosleep 115 semtimedop 192 semop 193 accept 202 connect 203 sendto 206 recvfrom 207 sendmsg 211
recvmsg 212 accept4 242 wait4 260 preadv2 286 statx 291 io_uring_enter 426
"""


def _table(text: str) -> dict[int, str]:
    words = text.split()
    return dict(zip(map(int, words[1::2]), words[::2], strict=True))


_CALLS = {"x86_64": _table(_X86), "aarch64": _table(_ARM)}


class Call(NamedTuple):
    """A system call that has not returned."""

    name: str
    arguments: tuple[int, ...]


def kernel_wait(pid: int, tid: int | None = None) -> KernelWait | None:
    """What a thread waits for, by default the main one; None without such a process."""
    tid = pid if tid is None else tid
    fields = stat_of(pid, tid)
    if not fields:
        return None
    state = fields[0]
    if state in "Tt":
        return KernelWait(None, "is stopped by a signal; `kill -CONT` lets it go on")
    if state in "ZX":
        return KernelWait(None, "has ended")
    call = _call(pid, tid)
    if state == "R" or call is None:
        return KernelWait(None, COMPUTES) if state == "R" else _unread(pid, tid, state)
    made = _KINDS.get(call.name, _other)(pid, call)
    return made if state != "D" else replace(made, words=f"{made.words} and cannot be interrupted")


def _call(pid: int, tid: int) -> Call | None:
    try:
        words = Path(f"/proc/{pid}/task/{tid}/syscall").read_text().split()
        number, *arguments = [int(word, 0) for word in words]
    except (OSError, ValueError):  # forbidden, or "running"
        return None
    if number < 0:
        return None
    name = _CALLS.get(platform.machine(), {}).get(number, f"system call {number}")
    return Call(name, tuple(arguments))


def _unread(pid: int, tid: int, state: str) -> KernelWait:
    """The thread waits, but its system call may not be read, or it is between two."""
    try:
        channel = Path(f"/proc/{pid}/task/{tid}/wchan").read_text().strip("0\n")
    except OSError:
        channel = ""
    if "futex" in channel:
        return KernelWait("futex", "waits for a lock")
    if channel:
        return KernelWait(None, f"waits in the kernel ({channel})")
    return KernelWait(
        None, "waits for a disk" if state == "D" else "waits; the kernel does not let us see for what"
    )


# --- one function for each kind of call ---------------------------------------------------------------------


def _sleep(_pid: int, call: Call) -> KernelWait:
    return KernelWait(call.name, "sleeps")


def _lock(_pid: int, call: Call) -> KernelWait:
    private = len(call.arguments) > 1 and call.arguments[1] & _FUTEX_PRIVATE
    whose = "inside this process" if private else "shared with other processes"
    return KernelWait(call.name, f"waits for a lock {whose}")


def _file_lock(pid: int, call: Call) -> KernelWait:
    if call.name == "fcntl" and call.arguments[1] not in _LOCK_COMMANDS:
        return _on_descriptor(pid, call)
    target = target_of(pid, call.arguments[0])
    holders = lock_holders(pid, call.arguments[0])
    return KernelWait(call.name, f"waits for a lock on the file {target.name}", target.name, holders)


def _on_descriptor(pid: int, call: Call) -> KernelWait:
    target = target_of(pid, call.arguments[0])
    verb = _VERBS.get(call.name, f"is in {call.name} on")
    return KernelWait(call.name, f"{verb} {target}", target.name, target.peers)


def _open(pid: int, call: Call) -> KernelWait:
    at = call.arguments[0] if call.name == "open" else call.arguments[1]
    path = _text(pid, at)
    if path is None:
        return KernelWait(call.name, "opens a file")
    kind = "FIFO, which waits for its other end" if _is_fifo(pid, path) else "file"
    return KernelWait(call.name, f"opens {path}" if kind == "file" else f"opens {path}, a {kind}", path)


def _polled(pid: int, call: Call) -> KernelWait:
    asked = _memory(pid, call.arguments[0], _POLLED.size * min(call.arguments[1], _MOST_FDS))
    whole = asked[: len(asked) // _POLLED.size * _POLLED.size]
    return _on_several(pid, call, [fd for fd, events, _ in _POLLED.iter_unpack(whole) if fd >= 0 and events])


def _selected(pid: int, call: Call) -> KernelWait:
    count = min(call.arguments[0], _MOST_FDS)
    masks = [_memory(pid, at, (count + 63) // 64 * 8) for at in call.arguments[1:4] if at]
    fds = [fd for fd in range(count) if any(fd // 8 < len(m) and m[fd // 8] >> fd % 8 & 1 for m in masks)]
    return _on_several(pid, call, fds)


def _epoll(pid: int, call: Call) -> KernelWait:
    try:
        lines = Path(f"/proc/{pid}/fdinfo/{call.arguments[0]}").read_text().splitlines()
    except OSError:
        lines = []
    fds = [int(line.split()[1]) for line in lines if line.startswith("tfd:")]
    return _on_several(pid, call, fds)


def _on_several(pid: int, call: Call, fds: list[int]) -> KernelWait:
    targets = [target_of(pid, fd) for fd in fds]
    if not targets:
        return KernelWait(call.name, "sleeps" if call.name != "epoll_wait" else "waits for events")
    shown = ", ".join(str(one) for one in targets[:_MOST_NAMED])
    more = f" and {len(targets) - _MOST_NAMED} more" if len(targets) > _MOST_NAMED else ""
    peers = tuple(dict.fromkeys(peer for one in targets for peer in one.peers))
    return KernelWait(call.name, f"waits for data from {shown}{more}", targets[0].name, peers)


def _child(pid: int, call: Call) -> KernelWait:
    waited = call.arguments[0] if call.name == "wait4" else call.arguments[1]
    waited = waited - (1 << 64) if waited >> 63 else waited & 0xFFFF_FFFF
    if waited <= 0 or waited >= 0xFFFF_FFFF:
        return KernelWait(call.name, "waits for a child process to end")
    name = command_of(waited)
    return KernelWait(call.name, f"waits for process {waited} to end" + (f" ({name})" if name else ""))


def _other(_pid: int, call: Call) -> KernelWait:
    return KernelWait(call.name, f"is in {call.name}")


_VERBS = {
    "read": "reads from",
    "pread64": "reads from",
    "readv": "reads from",
    "preadv": "reads from",
    "preadv2": "reads from",
    "recvfrom": "waits for data from",
    "recvmsg": "waits for data from",
    "write": "writes to",
    "sendto": "sends to",
    "sendmsg": "sends to",
    "accept": "waits for a connection to",
    "accept4": "waits for a connection to",
    "connect": "connects to",
    "fsync": "flushes",
    "fdatasync": "flushes",
    "getdents64": "lists the folder",
    "ioctl": "is in ioctl on",
}

_KINDS: dict[str, Callable[[int, Call], KernelWait]] = {
    **dict.fromkeys(_VERBS, _on_descriptor),
    **dict.fromkeys(("nanosleep", "clock_nanosleep", "pause"), _sleep),
    **dict.fromkeys(("futex", "semop", "semtimedop"), _lock),
    **dict.fromkeys(("flock", "fcntl"), _file_lock),
    **dict.fromkeys(("open", "openat"), _open),
    **dict.fromkeys(("poll", "ppoll"), _polled),
    **dict.fromkeys(("select", "pselect6"), _selected),
    **dict.fromkeys(("epoll_wait", "epoll_pwait"), _epoll),
    **dict.fromkeys(("wait4", "waitid"), _child),
}


# --- memory of another process ------------------------------------------------------------------------------


def _memory(pid: int, at: int, count: int) -> bytes:
    """Bytes of a process; empty where they may not be read."""
    if count <= 0:
        return b""
    try:
        fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(fd, count, at)
    except (OSError, OverflowError, ValueError):
        return b""
    finally:
        os.close(fd)


def _text(pid: int, at: int) -> str | None:
    """A path in the memory of a process."""
    page = 4096
    found = _memory(pid, at, min(_PATH_BYTES, page - at % page)) or b""
    if b"\0" not in found:
        found += _memory(pid, at + len(found), _PATH_BYTES - len(found))
    text, end, _ = found.partition(b"\0")
    return os.fsdecode(text) if end and text else None


def _is_fifo(pid: int, path: str) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd", path).is_fifo() if not path.startswith("/") else Path(path).is_fifo()
    except OSError:
        return False
