"""A machine's load and file systems, as a process can find them out."""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from unstarve.collect import host_facts as system
from unstarve.collect.host_facts import (
    cpu_usage,
    describe_system,
    filesystems,
    machine_cpu_s,
    missing_counters,
    shares_by_group,
)
from unstarve.machine import usable_cores


@pytest.fixture
def proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A /proc/self of our own; files that are not written there are missing."""
    real = Path

    def fake(path: str | Path = ".") -> Path:
        text = str(path)
        return tmp_path / real(text).name if text.startswith("/proc/self/") else real(path)

    monkeypatch.setattr(system, "Path", fake)
    return tmp_path


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:30 / /data rw,noatime - nfs4 server:/export rw
31 30 0:31 / /data/fast rw - tmpfs tmpfs rw
32 22 0:32 / /mnt/my\\040disk rw shared:2 master:1 - fuse.s3fs s3fs rw
"""


def test_files_belong_to_the_innermost_mount(proc: Path) -> None:
    (proc / "mountinfo").write_text(MOUNTS)
    opened = {"/data/images": 3, "/data/fast": 2, "/database": 1, "/home/me": 1, "/mnt/my disk/a": 4}
    assert filesystems(Counter(opened)) == {"nfs4": 3, "tmpfs": 2, "ext4": 2, "fuse.s3fs": 4}


def test_without_mountinfo_no_file_system_is_named(proc: Path) -> None:
    assert filesystems(Counter({"/data": 1})) == {}
    (proc / "mountinfo").write_text("garbage\n")
    assert filesystems(Counter({"/data": 1})) == {}


def test_this_machine_can_be_described() -> None:
    described = describe_system(Counter({"/": 1}))
    assert described["cores"] == usable_cores() >= 1
    assert described["missing"] == missing_counters()


def test_the_machines_busy_time_leaves_out_what_was_idle(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 20 30 9000 500 5 45 0 0 0\ncpu0 1 2 3\n")
    assert machine_cpu_s(stat) == pytest.approx((100 + 20 + 30 + 5 + 45) / os.sysconf("SC_CLK_TCK"))
    for text in ("", "cpu 1 2", "cpu a b c d e f g"):
        stat.write_text(text)
        assert machine_cpu_s(stat) is None
    assert machine_cpu_s(tmp_path / "missing") is None


def test_what_this_process_uses_grows_with_its_work() -> None:
    before = cpu_usage()
    sum(number * number for number in range(200_000))
    now = cpu_usage()
    assert now["at_ns"] > before["at_ns"]
    assert now["process_cpu_s"] > before["process_cpu_s"]
    assert now["machine_cores"] == os.cpu_count()


@pytest.mark.parametrize(
    ("autogroup", "cgroup_file", "grouped"),
    [
        ("1\n", "0::/\n", True),
        ("0\n", "0::/\n", False),
        ("0\n", "0::/user.slice/a\n", True),
        ("0\n", "3:cpu,cpuacct:/box\n2:memory:/\n", True),
        ("0\n", "2:memory:/box\n1:cpu:/\n", False),
        ("0\n", "nonsense\n", False),
        (None, "0::/box\n", True),
    ],
)
def test_sessions_and_containers_share_cores_as_groups(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, autogroup: str | None, cgroup_file: str, grouped: bool
) -> None:
    if autogroup is not None:
        (tmp_path / "sched_autogroup_enabled").write_text(autogroup)
    (tmp_path / "cgroup").write_text(cgroup_file)
    real = Path
    monkeypatch.setattr(system, "Path", lambda path: tmp_path / real(path).name)
    assert shares_by_group() is grouped


def test_where_nobody_tells_cores_are_shared_by_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(system, "Path", lambda path: tmp_path / "missing")
    assert shares_by_group() is False


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
def test_the_cores_of_the_main_thread_are_told_from_any_thread() -> None:
    told: list[Any] = []
    asking = threading.Thread(target=lambda: told.append(describe_system(Counter())["affinity"]))
    asking.start()
    asking.join()
    assert told == [sorted(os.sched_getaffinity(os.getpid()))]
