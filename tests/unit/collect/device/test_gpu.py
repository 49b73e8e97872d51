"""What torch's allocator held, from a stand-in for CUDA."""

from __future__ import annotations

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
