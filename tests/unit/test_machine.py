"""Cores and memory that a process may use, also inside a container."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from unstarve import machine
from unstarve.machine import available_bytes, cgroup_periods, cgroup_quota_cores, counted_free_bytes


@pytest.fixture
def proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A /proc/self of our own; files that are not written there are missing."""
    real = Path

    def fake(path: str | Path = ".") -> Path:
        text = str(path)
        return tmp_path / real(text).name if text.startswith("/proc/self/") else real(path)

    monkeypatch.setattr(machine, "Path", fake)
    return tmp_path


def cgroup(root: Path, folder: str, **files: str) -> None:
    path = root / folder
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)


def test_version_2_quota_and_throttling(proc: Path) -> None:
    (proc / "cgroup").write_text("0::/user/job\n")
    root = proc / "fs"
    cgroup(root, "user/job", cpu__max="150000 100000\n", cpu__stat="usage_usec 5\nnr_throttled 17\n")
    assert cgroup_quota_cores(root) == 1.5
    assert cgroup_periods(root) == (None, 17)


def test_version_2_without_a_limit_looks_further_out(proc: Path) -> None:
    (proc / "cgroup").write_text("0::/pod/container\n")
    root = proc / "fs"
    cgroup(root, "pod/container", cpu__max="max 100000\n")
    assert cgroup_quota_cores(root) is None
    cgroup(root, "pod", cpu__max="400000 100000\n")
    assert cgroup_quota_cores(root) == 4


def test_the_tightest_limit_counts(proc: Path) -> None:
    (proc / "cgroup").write_text("0::/pod/container\n")
    root = proc / "fs"
    cgroup(root, "pod/container", cpu__max="800000 100000\n")
    cgroup(root, "pod", cpu__max="200000 100000\n")
    assert cgroup_quota_cores(root) == 2


def test_a_namespaced_container_sees_its_limits_at_the_root(proc: Path) -> None:
    (proc / "cgroup").write_text("0::/\n")
    root = proc / "fs"
    cgroup(root, ".", cpu__max="50000 100000\n", cpu__stat="nr_throttled 3\n")
    assert cgroup_quota_cores(root) == 0.5
    assert cgroup_periods(root) == (None, 3)


def test_version_1_quota_and_throttling(proc: Path) -> None:
    (proc / "cgroup").write_text("4:memory:/a\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/x\n")
    root = proc / "fs"
    cgroup(
        root,
        "cpu,cpuacct/docker/abc",
        cpu__cfs_quota_us="50000\n",
        cpu__cfs_period_us="100000\n",
        cpu__stat="nr_periods 10\nnr_throttled 4\nthrottled_time 9\n",
    )
    assert cgroup_quota_cores(root) == 0.5
    assert cgroup_periods(root) == (10, 4)


def test_version_1_without_a_limit_says_minus_one(proc: Path) -> None:
    (proc / "cgroup").write_text("3:cpu,cpuacct:/\n")
    root = proc / "fs"
    cgroup(root, "cpu,cpuacct", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    assert cgroup_quota_cores(root) is None


def test_a_container_mounts_version_1_limits_at_the_controllers_root(proc: Path) -> None:
    """The path of /proc/self/cgroup is the host's there; only the mount's root exists."""
    (proc / "cgroup").write_text("3:cpu,cpuacct:/docker/abc\n")
    root = proc / "fs"
    cgroup(root, "cpu,cpuacct", cpu__cfs_quota_us="200000\n", cpu__cfs_period_us="100000\n")
    assert cgroup_quota_cores(root) == 2


def test_without_cgroups_nothing_is_claimed(proc: Path) -> None:
    assert cgroup_quota_cores(proc / "fs") is None
    assert cgroup_periods(proc / "fs") == (None, None)
    (proc / "cgroup").write_text("not a cgroup line\n")
    assert cgroup_quota_cores(proc / "fs") is None


@pytest.mark.parametrize(
    ("line", "folder", "files"),
    [
        ("0::/job", "job", {"memory__max": "3000000", "memory__current": "2500000"}),
        ("0::/", ".", {"memory__max": "3000000", "memory__current": "2500000"}),
        (
            "4:memory:/a/b",
            "memory/a",
            {"memory__limit_in_bytes": "3000000", "memory__usage_in_bytes": "2500000"},
        ),
    ],
)
def test_a_container_has_less_memory(proc: Path, line: str, folder: str, files: dict[str, str]) -> None:
    (proc / "cgroup").write_text(f"1:cpu:/x\n{line}\n")
    cgroup(proc / "fs", folder, **files, memory__stat="anon 5\ninactive_file 100000\n")
    assert available_bytes(proc / "fs") == 600_000


def test_memory_without_a_limit_is_the_machines(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=7))
    assert available_bytes(proc / "fs") == 7
    (proc / "cgroup").write_text("0::/job\n")
    cgroup(proc / "fs", "job", memory__max="max\n", memory__current="1\n")
    assert available_bytes(proc / "fs") == 7


def test_a_training_counts_its_free_memory_without_psutil(proc: Path) -> None:
    counts = proc / "meminfo"
    assert counted_free_bytes(proc, counts) is None
    counts.write_text("MemTotal:       32000 kB\nMemAvailable:   20000 kB\n")
    (proc / "cgroup").write_text("0::/\n")
    assert counted_free_bytes(proc / "fs", counts) == 20_000 * 1024
    cgroup(proc, "fs", memory__max="4000000", memory__current="1000000", memory__stat="inactive_file 0\n")
    assert counted_free_bytes(proc / "fs", counts) == 3_000_000
