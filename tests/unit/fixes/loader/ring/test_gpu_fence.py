"""Pinned slots go back to their worker when the GPUs are done with them; here with a driver that is told."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from unstarve.fixes.loader.ring import gpu_fence as pinned
from unstarve.fixes.loader.ring.gpu_fence import Fence
from unstarve.fixes.memory.unnamed_memory import create

NOT_READY = 600


class Driver:
    """Stands in for libcuda and the CUDA runtime, with one GPU in use."""

    def __init__(self) -> None:
        self.busy = True
        self.broken = False
        self.calls: list[str] = []
        self.registered: set[int] = set()

    def cuEventQuery(self, event: Any) -> int:
        return NOT_READY if self.busy else 0

    def cuDevicePrimaryCtxGetState(self, device: int, flags: Any, active: Any) -> int:
        active._obj.value = 1
        return 0

    def cuMemHostRegister_v2(self, address: Any, size: Any, flags: int) -> int:
        if not self.broken:
            self.registered.add(address.value)
        return int(self.broken)

    def cuMemHostUnregister(self, address: Any) -> int:
        self.registered.discard(address.value)
        return 0

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> int:
            self.calls.append(name)
            return 1 if self.broken else 0

        return call


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    return driver


def test_nothing_is_given_back_before_the_gpu_is_done(driver: Driver) -> None:
    fence, done = Fence(driver), []
    fence.when_done(lambda: done.append(1))
    for _ in range(3):
        fence.settle()
    assert done == []
    assert driver.calls.count("cuCtxRecordEvent") == 1
    driver.busy = False
    fence.settle()
    assert done == [1]


def test_what_is_let_go_after_the_mark_waits_for_a_mark_of_its_own(driver: Driver) -> None:
    fence, done = Fence(driver), []
    fence.when_done(lambda: done.append(1))
    fence.settle()
    fence.when_done(lambda: done.append(2))
    driver.busy = False
    fence.settle()
    assert done == [1]
    fence.settle()
    assert done == [1, 2]
    assert driver.calls.count("cuEventCreate") <= 2
    assert driver.calls.count("cuCtxRecordEvent") == 2


def test_nothing_is_asked_of_the_driver_while_a_graph_is_captured(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence, done = Fence(driver), []
    fence.when_done(lambda: done.append(1))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    fence.settle()
    assert driver.calls == []


def test_a_driver_that_fails_is_waited_for(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[bool] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append(True))
    fence, done = Fence(driver), []
    driver.broken = True
    fence.when_done(lambda: done.append(1))
    fence.settle()
    fence.settle()
    assert (waited, done) == ([True], [1])


def test_memory_is_pinned_while_mapped_and_unpinned_inside_settle_alone(driver: Driver) -> None:
    fence = Fence(driver)
    mapping, descriptor = create(4096)
    seen, is_pinned = fence.map(descriptor, 4096)
    os.close(descriptor)
    assert is_pinned
    assert driver.registered == {seen.address}
    address = seen.address
    del seen
    assert driver.registered == {address}
    fence.settle()
    assert driver.registered == set()
    assert mapping.size_bytes == 4096


def test_memory_that_cannot_be_pinned_is_mapped_all_the_same(driver: Driver) -> None:
    driver.broken = True
    mapping, descriptor = create(4096)
    mapping.view()[7] = 1
    seen, is_pinned = Fence(driver).map(descriptor, 4096)
    os.close(descriptor)
    assert not is_pinned
    assert seen.view()[7] == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_cuda_there_is_no_fence() -> None:
    assert pinned.fence() is None
