"""Limits that need cgroup v1 and the right to write there; elsewhere such cases are skipped.

A limited script moves itself into a new group and back; `sweep` removes groups whose script was killed before
it could.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
PREFIX = "unstarve-zoo-"


def slow_disk(read_bytes_per_s: int) -> Mapping[str, str]:
    """Files of the group ``blkio`` that slow down the disk under the current folder."""
    device = Path.cwd().stat().st_dev
    return {
        "blkio.throttle.read_bps_device": f"{os.major(device)}:{os.minor(device)} {read_bytes_per_s}",
    }


def few_cores(cores: float) -> Mapping[str, str]:
    """Files of the group ``cpu`` that leave it `cores` of CPU time."""
    return {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": str(int(cores * 100_000))}


@contextlib.contextmanager
def limited(controller: str, files: Mapping[str, str]) -> Iterator[None]:
    """Limit this process and all processes that it starts meanwhile."""
    home = ROOT / controller / _own_group(controller).lstrip("/")
    if not home.is_dir():  # in a container the path may be the host's
        home = ROOT / controller
    group = ROOT / controller / f"{PREFIX}{os.getpid()}"
    group.mkdir()
    try:
        for name, value in files.items():
            (group / name).write_text(value)
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (home / "cgroup.procs").write_text(str(os.getpid()))
        _remove(group)


def needs(controller: str, files: Callable[[], Mapping[str, str]]) -> Callable[[], str | None]:
    """A `Case.why_not` for cases that use `limited`."""

    def why_not() -> str | None:
        if not (ROOT / controller / "cgroup.procs").exists():
            return f"no cgroup v1 with the controller {controller}"
        try:
            with contextlib.chdir(tempfile.gettempdir()), limited(controller, files()):
                return None
        except OSError as error:
            return f"cgroup v1 {controller}: {error.strerror}"

    return why_not


def sweep() -> None:
    """Remove groups whose script is gone."""
    for group in ROOT.glob(f"*/{PREFIX}*"):
        if not Path(f"/proc/{group.name.removeprefix(PREFIX)}").exists():
            with contextlib.suppress(OSError):  # something still lives in it
                group.rmdir()


def _own_group(controller: str) -> str:
    """From lines like ``7:blkio:/some/group``."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return path
    return "/"


def _remove(group: Path) -> None:
    """Workers that were just ended may still be leaving."""
    for _ in range(50):
        try:
            group.rmdir()
            return
        except OSError:
            time.sleep(0.05)
