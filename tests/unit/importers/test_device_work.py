"""Why a device was idle: the loader, late launches, or something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profiler_files import event, write_trace
from unstarve.analyze.device_idle import device_findings
from unstarve.importers.summarize import profile_of
from unstarve.importers.torch_trace import read_torch_trace
from unstarve.model.profile import DeviceUse, Profile


def kernels(
    count: int, *, kernel_us: float, gap_us: float, ahead: bool = False, linked: bool = True
) -> dict[str, Any]:
    """Kernels with gaps between them; each is launched in the gap before it, or all of them `ahead`."""
    events = [event("user_annotation", "ProfilerStep#0", 0, count * (kernel_us + gap_us) / 1e3)]
    for number in range(count):
        at_us = number * (kernel_us + gap_us)
        call = {"correlation": number} if linked else {}
        launched_us = number * 1e-3 if ahead else at_us + 1
        events.append(event("cuda_runtime", "cudaLaunchKernel", launched_us / 1e3, 1e-3, **call))
        events.append(event("kernel", "tiny", (at_us + gap_us) / 1e3, kernel_us / 1e3, device=0, **call))
    return {"traceEvents": events}


def profile(folder: Path, trace: dict[str, Any]) -> Profile:
    return profile_of(read_torch_trace(write_trace(folder / "t.json", trace), lambda done: None))


def use(folder: Path, trace: dict[str, Any]) -> DeviceUse:
    (device,) = profile(folder, trace).devices
    return device


@pytest.mark.parametrize("linked", [True, False])
def test_short_kernels_launched_one_by_one_are_launch_bound(tmp_path: Path, linked: bool) -> None:
    found = profile(tmp_path, kernels(100, kernel_us=5, gap_us=20, linked=linked))
    (device,) = found.devices
    assert device.launch_bound
    assert device.launch_gap_s == pytest.approx(100 * 20e-6, rel=0.02)
    assert device.median_kernel_s == pytest.approx(5e-6, rel=0.02)
    said = " ".join(device_findings(found))
    assert "GPU 0 was idle 80% of the time: 80% in launch gaps. It is launch-bound." in said
    assert "CUDA graphs" in said


def test_gaps_before_kernels_that_were_launched_in_time_are_not_the_hosts(tmp_path: Path) -> None:
    device = use(tmp_path, kernels(100, kernel_us=5, gap_us=20, ahead=True))
    assert device.launch_gap_s < 1e-4
    assert device.late_s == pytest.approx(device.idle_s, rel=0.1)
    assert device.launch_bound is False


def test_long_kernels_and_long_gaps_are_not_launch_bound(tmp_path: Path) -> None:
    assert use(tmp_path, kernels(20, kernel_us=100, gap_us=60)).launch_bound is False
    long = use(tmp_path, kernels(20, kernel_us=10, gap_us=500))
    assert (long.launch_bound, long.launch_gap_s) == (False, 0)


def test_the_wait_for_a_loader_is_not_a_launch_gap(tmp_path: Path) -> None:
    trace = kernels(100, kernel_us=5, gap_us=20)
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    trace["traceEvents"].append(event("user_annotation", name, 0, 2.5))
    device = use(tmp_path, trace)
    assert device.starved_s == pytest.approx(device.idle_s)
    assert (device.launch_gap_s, device.launch_bound) == (0, False)
