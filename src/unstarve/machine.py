"""The cores and memory that a process may use, of the machine or of its container."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


first_cores: int | None = None
"""Cores that this process could run on when Python started; set by the bootstrap of `unstarve run`."""


def share_of_cores() -> float:
    """The cores this process may use, divided among the ranks of the node; at least 1."""
    cores, quota = float(usable_cores()), cgroup_quota_cores()
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1") or 1)
    return max((cores if quota is None else min(cores, quota)) / max(ranks, 1), 1.0)


def usable_cores() -> int:
    """Cores this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def main_thread_cores() -> list[int] | None:
    """Numbers of the cores that the main thread may run on; None where that is not known."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return None if affinity is None else sorted(affinity(os.getpid()))


def machine_cpu_s(stat: Path = Path("/proc/stat")) -> float | None:
    """CPU seconds of all cores together; None where that is not counted.

    The first line of /proc/stat: ``cpu  user nice system idle iowait irq softirq steal guest …``, in ticks.
    """
    try:
        ticks = [int(word) for word in stat.read_text().split("\n", 1)[0].split()[1:8]]
    except (OSError, ValueError):
        return None
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK") if len(ticks) == 7 else None


def cgroup_quota_cores(root: Path = _CGROUPS) -> float | None:
    """The CPU quota of the tightest cgroup, in cores; None for no limit.

    Version 2 has ``cpu.max``: "200000 100000" (or "max 100000"); version 1 has two files.
    """
    limits = []
    for folder in _cgroup_folders(root, "cpu"):
        try:
            quota, period = (folder / "cpu.max").read_text().split()
        except (OSError, ValueError):
            try:
                quota = (folder / "cpu.cfs_quota_us").read_text().strip()
                period = (folder / "cpu.cfs_period_us").read_text().strip()
            except OSError:
                continue
        if quota.isdigit() and int(period) > 0:
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def cgroup_periods(root: Path = _CGROUPS) -> tuple[int | None, int | None]:
    """The periods of the cgroup's CPU quota so far, and those in which it was used up; None if not counted.

    Part of ``cpu.stat``: "nr_periods 812", "nr_throttled 17".
    """
    for folder in _cgroup_folders(root, "cpu"):
        try:
            words = (folder / "cpu.stat").read_text().split()
        except OSError:
            continue
        counted = dict(zip(words[::2], words[1::2], strict=False))
        if "nr_throttled" in counted:
            periods = counted.get("nr_periods")
            return None if periods is None else int(periods), int(counted["nr_throttled"])
    return None, None


def oom_kills(root: Path = _CGROUPS, counts: Path = Path("/proc/vmstat")) -> int | None:
    """Processes killed for lack of memory so far, in this cgroup or else on this machine; None if unknown.

    Version 2 has ``memory.events``: "oom_kill 3"; version 1 has ``memory.oom_control``; so has /proc/vmstat.
    """
    groups = [f / n for f in _cgroup_folders(root, "memory") for n in ("memory.events", "memory.oom_control")]
    for file in (*groups, counts):
        try:
            words = file.read_text().split()
        except OSError:
            continue
        if "oom_kill" in words:
            return int(words[words.index("oom_kill") + 1])
    return None


def available_bytes(root: Path = _CGROUPS) -> int:
    """Memory that can be allocated without swapping or being killed."""
    import psutil  # here: a watched training does without it, because it is slow to import

    return min([psutil.virtual_memory().available, *_left_in_cgroups(root)])


def counted_free_bytes(root: Path = _CGROUPS, counts: Path = Path("/proc/meminfo")) -> int | None:
    """The same for a watched training: one small file is read; None where it does not exist.

    A line of /proc/meminfo: ``MemAvailable:   12345678 kB``.
    """
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB$", counts.read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else min([int(found[1]) * 1024, *_left_in_cgroups(root)])


def _left_in_cgroups(root: Path) -> Iterator[int]:
    """Limit minus usage of each cgroup level; version 1 has other file names."""
    for folder in _cgroup_folders(root, "memory"):
        for limit, used in (("max", "current"), ("limit_in_bytes", "usage_in_bytes")):
            try:
                most = int((folder / f"memory.{limit}").read_text())
                now = int((folder / f"memory.{used}").read_text())
                yield max(0, most - now + _reclaimable(folder))
            except (OSError, ValueError):  # no limit ("max"), or not readable
                continue


def _reclaimable(folder: Path) -> int:
    """Page cache that the kernel drops before it kills a process."""
    found = re.search(r"^(?:total_)?inactive_file (\d+)$", (folder / "memory.stat").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def _cgroup_folders(root: Path, controller: str) -> list[Path]:
    """The cgroup folders of this process, the innermost first."""
    folders = []
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        _, known, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if (known and controllers == "") or controller in controllers.split(","):
            base = root if controllers == "" else root / controllers
            inside = base / path.lstrip("/")
            folders += [inside, *(p for p in inside.parents if p == base or base in p.parents)]
    return folders
