"""The binding of the CUDA driver, here with a driver that does as it is told."""

from __future__ import annotations

from typing import Any

import pytest

from unstarve.cuda_driver import CudaDriverError, beside_graph_captures, call_driver

GLOBAL, RELAXED = 0, 2


class Driver:
    def __init__(self, code: int = 0) -> None:
        self.mode = GLOBAL
        self.code = code

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> int:
        if not self.code:
            self.mode, mode._obj.value = mode._obj.value, self.mode
        return self.code


def test_a_failed_call_names_the_function_and_its_code() -> None:
    with pytest.raises(CudaDriverError, match="CaptureMode failed with CUDA driver error 3"):
        call_driver(Driver(3), "cuThreadExchangeStreamCaptureMode", None)


def test_the_capture_mode_is_relaxed_inside_only() -> None:
    driver = Driver()
    modes = []

    def fail() -> None:
        with beside_graph_captures(driver):
            modes.append(driver.mode)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [*modes, driver.mode] == [RELAXED, GLOBAL]


@pytest.mark.parametrize("driver", [None, object(), Driver(1)])
def test_a_driver_that_cannot_relax_it_is_left_alone(driver: Any) -> None:
    with beside_graph_captures(driver):
        assert getattr(driver, "mode", GLOBAL) == GLOBAL
    assert getattr(driver, "mode", GLOBAL) == GLOBAL
