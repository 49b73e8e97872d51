"""How much a function does, by count and not by the clock: lines of Python that run while it is called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_run(function: Callable[[], object]) -> int:
    """Lines that run, in whatever is called."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def grows_with_its_input(make: Callable[[int], Callable[[], object]], size: int) -> bool:
    """Whether twice the input is about twice the work; four times would be, where it is quadratic."""
    once, twice = (lines_run(make(count)) for count in (size, 2 * size))
    return twice < 2.5 * once
