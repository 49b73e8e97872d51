"""What a process can find out about itself and its machine: rank, load, file systems, missing counters."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from unstarve import machine
from unstarve.collect.counters import counts_delay
from unstarve.machine import (
    cgroup_periods,
    cgroup_quota_cores,
    counted_free_bytes,
    machine_cpu_s,
    usable_cores,
)


def describe_system(folders: Counter[str]) -> dict[str, Any]:
    """Plain data about the machine; `folders` counts the files opened in each folder."""
    usage = cpu_usage()
    return {
        "cores": usable_cores(),
        "affinity": machine.main_thread_cores(),
        "first_cores": machine.first_cores,
        "quota_cores": cgroup_quota_cores(),
        "throttled": usage["throttled"],
        "counts_delay": counts_delay(),
        "missing": missing_counters(),
        "filesystems": dict(filesystems(folders)),
        "usage": usage,
        "grouped": shares_by_group(),
        "free_bytes": counted_free_bytes(),
    }


def shares_by_group() -> bool:
    """Whether cores are divided between sessions or containers first, whatever runs in them."""
    with contextlib.suppress(OSError):  # a kernel without autogroups
        if Path("/proc/sys/kernel/sched_autogroup_enabled").read_text().strip() == "1":
            return True
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return False
    groups = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    return any(path != "/" for _, names, path in groups if names == "" or "cpu" in names.split(","))


def cpu_usage() -> dict[str, float | int | None]:
    """CPU seconds so far, of this process and of the machine: two readings tell what other processes use.

    And the periods of the CPU quota: two readings tell how often it was used up in between.
    """
    periods, throttled = cgroup_periods()
    return {
        "at_ns": time.perf_counter_ns(),
        "process_cpu_s": time.process_time(),
        "machine_cpu_s": machine_cpu_s(),
        "machine_cores": os.cpu_count(),
        "periods": periods,
        "throttled": throttled,
    }


def missing_counters() -> list[str]:
    """Paths of counters that this machine does not offer."""
    return [path for path in ("/proc/thread-self/schedstat", "/proc/self/io") if not os.access(path, os.R_OK)]


def filesystems(folders: Counter[str]) -> Counter[str]:
    """Number of files opened, by kind of file system.

    A line of /proc/self/mountinfo: ``36 35 98:0 / /data rw,noatime - ext4 /dev/sda1 rw``; a blank in the
    mount point is written ``\\040``.
    """
    mounts: list[tuple[str, str]] = []
    try:
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            left, _, right = line.partition(" - ")
            point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), left.split()[4])
            mounts.append((point, right.split()[0]))
    except (OSError, IndexError):
        return Counter()
    mounts.sort(key=lambda mount: -len(mount[0]))
    kinds: Counter[str] = Counter()
    for folder, count in list(folders.items()):  # other threads open files meanwhile
        inside = [kind for point, kind in mounts if f"{folder}/".startswith(f"{point.rstrip('/')}/")]
        kinds[inside[0] if inside else "unknown"] += count
    return kinds


def environment_rank() -> int | None:
    """Rank of this process as its launcher (torchrun, accelerate, …) has set it; None when there is none."""
    return _number("RANK")


def launched_as() -> dict[str, int | None]:
    """Rank of this process, and how often torchrun had restarted the ranks before."""
    return {"rank": environment_rank(), "attempt": _number("TORCHELASTIC_RESTART_COUNT")}


def _number(name: str) -> int | None:
    """A number that a launcher has put into the environment; None when there is none."""
    number = os.environ.get(name, "")
    return int(number) if number.isdigit() else None


def group_rank() -> int | None:
    """Rank of this process in its process group, or in the last one; None when there was none yet."""
    global _rank
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        _rank = distributed.get_rank()
    return _rank


_rank: int | None = None
