"""What is behind a descriptor of another process, who has its other end, and who holds a lock on it.

/proc/PID/fd/3       → "/data/a.jpg", "pipe:[8112]", "socket:[8113]"
/proc/PID/net/tcp    "0: 0100007F:1F90 0100007F:C350 01 … 8113 …": local and remote address, inode
/proc/locks          "1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF": holder, device and inode
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_MOST_PROCESSES = 2000
_MOST_COMMAND = 60
_ACCESS = 3
"""Of the flags of an open file: whether it reads (0), writes (1) or both (2)."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a descriptor stands for."""

    name: str
    """A path, ``pipe:[8112]``, or an address: ``127.0.0.1:8080``."""
    kind: str = "file"
    """``file``, ``pipe``, ``FIFO``, ``socket``, ``descriptor``."""
    peers: tuple[str, ...] = ()
    """The processes at the other end of a pipe."""

    def __str__(self) -> str:
        return f"the {self.kind} {self.name}"


def target_of(pid: int, fd: int) -> Target:
    """What is behind a descriptor of a process."""
    fd &= 0xFFFF_FFFF
    try:
        link = str(Path(f"/proc/{pid}/fd/{fd}").readlink())
    except OSError:
        return Target(f"{fd}", "descriptor")
    if link.startswith("pipe:"):
        return Target(link, "pipe", _peers(pid, fd, link))
    if link.startswith("socket:"):
        return Target(_address(pid, link[8:-1]) or link, "socket")
    if _mode(pid, fd) == stat.S_IFIFO:
        return Target(link, "FIFO", _peers(pid, fd, link))
    return Target(link)


def lock_holders(pid: int, fd: int, locks: Path = Path("/proc/locks")) -> tuple[str, ...]:
    """The processes that hold a lock on the file behind a descriptor."""
    try:
        file = os.stat(f"/proc/{pid}/fd/{fd}")  # noqa: PTH116 - the link of another process
        lines = locks.read_text().splitlines()
    except OSError:
        return ()
    place = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    found = []
    for line in lines:
        words = line.split()
        if "->" not in words and place in words:
            holder = int(words[words.index(place) - 1])
            if holder > 0 and holder != pid:
                found.append(shown(holder))
    return tuple(dict.fromkeys(found))


def command_of(pid: int) -> str:
    """The command line of a process, cut; empty where it cannot be read."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return ""
    line = " ".join([Path(words[0]).name, *words[1:]]).strip()
    return line if len(line) <= _MOST_COMMAND else f"{line[: _MOST_COMMAND - 1]}…"


def shown(pid: int) -> str:
    """``process 4711 (python server.py)``."""
    name = command_of(pid)
    return f"process {pid}" + (f" ({name})" if name else "")


def _peers(pid: int, fd: int, link: str) -> tuple[str, ...]:
    """The other processes that have the other end of a pipe open."""
    reads = _flags(pid, fd) & _ACCESS == os.O_RDONLY
    found = []
    for other, number in _openers(link):
        access = _flags(other, number) & _ACCESS
        if other != pid and access != (os.O_RDONLY if reads else os.O_WRONLY):
            found.append(shown(other))
    return tuple(dict.fromkeys(found))


def _openers(link: str) -> Iterator[tuple[int, int]]:
    """Processes and descriptors that a pipe is open in, as far as they may be read."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - a Path each would cost more
    for pid in pids[:_MOST_PROCESSES]:
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path) == link:  # noqa: PTH115 - a Path each would cost more
                        yield pid, int(entry.name)


def _flags(pid: int, fd: int) -> int:
    try:
        found = re.search(r"^flags:\s*(\d+)$", Path(f"/proc/{pid}/fdinfo/{fd}").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1], 8) if found else 0


def _mode(pid: int, fd: int) -> int:
    try:
        return stat.S_IFMT(os.stat(f"/proc/{pid}/fd/{fd}").st_mode)  # noqa: PTH116 - as above
    except OSError:
        return 0


def _address(pid: int, inode: str) -> str | None:
    """The remote address of a socket, or the local one of a listening one."""
    for table, family, unit in (
        ("tcp", socket.AF_INET, 8),
        ("tcp6", socket.AF_INET6, 32),
        ("udp", socket.AF_INET, 8),
    ):
        try:
            lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        for words in map(str.split, lines):
            if len(words) > 9 and words[9] == inode:
                address = words[2] if int(words[2][unit + 1 :], 16) else words[1]
                return _readable(address, family)
    with contextlib.suppress(OSError):
        for words in map(str.split, Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]):
            if len(words) > 6 and words[6] == inode:
                return words[7] if len(words) > 7 else None
    return None


def _readable(address: str, family: socket.AddressFamily) -> str:
    """``0100007F:1F90`` → ``127.0.0.1:8080``: four bytes at a time, in the order of the processor."""
    host, _, port = address.partition(":")
    words = [bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8)]
    name = socket.inet_ntop(family, b"".join(words))
    return f"[{name}]:{int(port, 16)}" if family == socket.AF_INET6 else f"{name}:{int(port, 16)}"
