"""What torch's allocator held, from a stand-in for CUDA."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from unstarve.collect.device import gpu


def test_without_cuda_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "cuda_in_use", lambda: False)
    assert gpu.allocator_peaks() == {}


def test_the_peaks_are_those_of_the_fullest_device_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {0: (5, 9), 2: (7, 8)}

    def stats(device: int) -> dict[str, dict[str, dict[str, int]]]:
        allocated, reserved = held[device]
        return {
            "allocated_bytes": {"all": {"peak": allocated}},
            "reserved_bytes": {"all": {"peak": reserved}},
        }

    monkeypatch.setattr(gpu, "cuda_in_use", lambda: True)
    monkeypatch.setattr(gpu, "has_context", held.__contains__)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", stats)
    assert gpu.allocator_peaks() == {"allocated_peak_bytes": 7, "reserved_peak_bytes": 8}
    held.clear()
    assert gpu.allocator_peaks() == {}


HANDLE = ctypes.c_void_p(7)


def says(*values: int) -> Callable[..., int]:
    """A function of the driver's library that succeeds, and says these values, the last of its arguments."""

    def function(handle: Any, *arguments: Any) -> int:
        assert handle is HANDLE
        for place, value in zip(arguments[-len(values) :], values, strict=True):
            place._obj.value = value
        return 0

    return function


def refuses(*arguments: Any) -> int:
    return 3  # NVML_ERROR_NOT_SUPPORTED


def by_direction(handle: Any, direction: int, place: Any) -> int:
    """PCI Express: 0 is what the device sends, 1 what it receives."""
    return says((90, 3_000_000)[direction])(handle, place)


def test_the_driver_says_power_pci_express_and_the_jpeg_engines() -> None:
    library = SimpleNamespace(
        nvmlDeviceGetPowerUsage=says(412_000),
        nvmlDeviceGetPcieThroughput=by_direction,
        nvmlDeviceGetJpgUtilization=says(38, 167_000),
    )
    assert gpu.Gauge(library, HANDLE).engines() == (412_000, 3_000_000_000, 90_000, 38)


def test_what_an_old_driver_does_not_know_or_refuses_is_unknown() -> None:
    library = SimpleNamespace(nvmlDeviceGetPowerUsage=refuses, nvmlDeviceGetPcieThroughput=refuses)
    gauge = gpu.Gauge(library, HANDLE)
    assert gauge.engines() == (-1, -1, -1, -1)
    assert not gauge.shared()
