"""One look at the memory of this process, and at that of its machine.

    /proc/self/smaps_rollup   "Pss:  332 kB": the sums over all its mappings, from Linux 4.14 on
    /proc/self/fd             one entry for each open descriptor
    /proc/pressure/memory     "some avg10=0.31 …": percent of the last ten seconds, if the kernel counts it
    /proc/vmstat              "workingset_refault_file 4463559": pages

Any of them may be missing: its numbers are then −1. Paths are bytes: `file_opens` does not count those.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys

from unstarve.collect.process_pulse import content, shared_memory
from unstarve.record import format as f

_ROLLUP = b"/proc/self/smaps_rollup"
_DESCRIPTORS = b"/proc/self/fd"
_PRESSURE = b"/proc/pressure/memory"
_CGROUP_PRESSURE = b"/sys/fs/cgroup/memory.pressure"
"""Of the container, where its own cgroup is mounted as the root."""
_VMSTAT = b"/proc/vmstat"
_UNKNOWN = -1
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_REFAULTS = (b"workingset_refault_file", b"workingset_refault")
"""The second one up to Linux 5.8."""


def memory_row(now_ns: int, *, training: bool) -> f.MemoryRow:
    """The row to write. Walks the page tables of the process: milliseconds for gigabytes."""
    known = rollup()
    private = known.get(b"Private_Clean", _UNKNOWN), known.get(b"Private_Dirty", _UNKNOWN)
    return f.MemoryRow(
        at_ns=now_ns,
        uss_bytes=sum(private) if min(private) >= 0 else _UNKNOWN,
        pss_bytes=known.get(b"Pss", _UNKNOWN),
        anonymous_bytes=known.get(b"Anonymous", _UNKNOWN),
        dirty_bytes=private[1],
        blocks=sys.getallocatedblocks(),
        descriptors=open_descriptors(),
        descriptor_limit=descriptor_limit(),
        major_faults=resource.getrusage(resource.RUSAGE_SELF).ru_majflt,
        shm_bytes=shared_memory()[0] if training else _UNKNOWN,
        pressure=memory_pressure() if training else _UNKNOWN,
        refaulted_bytes=refaulted_bytes() if training else _UNKNOWN,
    )


def rollup(file: bytes = _ROLLUP) -> dict[bytes, int]:
    """Bytes by name; empty where the kernel does not tell."""
    found = {}
    try:
        for line in content(file).splitlines()[1:]:
            words = line.split()
            if words[2:] == [b"kB"]:
                found[words[0].rstrip(b":")] = int(words[1]) * 1024
    except (OSError, ValueError):
        return {}
    return found


def open_descriptors(folder: bytes = _DESCRIPTORS) -> int:
    """How many descriptors this process has open."""
    try:
        return len(os.listdir(folder)) - 1  # noqa: PTH208  # bytes; the listing itself has one open
    except OSError:
        return _UNKNOWN


def descriptor_limit() -> int:
    """How many it may have open; −1 without a limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNKNOWN if soft == resource.RLIM_INFINITY else soft


def memory_pressure(files: tuple[bytes, ...] = (_CGROUP_PRESSURE, _PRESSURE)) -> int:
    """Share of the last ten seconds in which some process waited for memory, in hundredths of a percent."""
    for file in files:
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = content(file).split()
            return round(float(words[1].removeprefix(b"avg10=")) * 100)
    return _UNKNOWN


def refaulted_bytes(file: bytes = _VMSTAT) -> int:
    """Bytes of files that the page cache had dropped and had to read again, since the machine started."""
    try:
        words = content(file, 1 << 14).split()
        counts = dict(zip(words[::2], words[1::2], strict=False))
        return next((int(counts[name]) for name in _REFAULTS if name in counts), _UNKNOWN) * _PAGE_BYTES
    except (OSError, ValueError):
        return _UNKNOWN
