"""`unstarve.compare_implementations`: callables measured in turns, device time included."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import profiler

from unstarve.errors import UsageError
from unstarve.intervals import half_width, turn_order
from unstarve.words import duration, times_interval

_LEAST_S = 2e-3
"""A measurement calls its function until this much time has passed."""
_MOST_CALLS = 10_000


@dataclass(frozen=True, slots=True)
class Implementation:
    """One of the callables."""

    name: str
    seconds: float
    """Median time of a call, until the device has finished."""
    low: float
    high: float
    ratio: float
    """Speed relative to the first one: 2 is twice as fast."""
    ratio_low: float
    ratio_high: float
    device_s: float | None
    """Time on the device per call; None without one."""
    operators: tuple[tuple[str, float], ...]
    """The operators that take the most time, and their share of it."""


@dataclass(frozen=True, slots=True)
class Implementations:
    """All of them, in the given order; ``print`` it to read it."""

    results: tuple[Implementation, ...]

    @property
    def fastest(self) -> str:
        """Name of the one with the shortest time."""
        return min(self.results, key=lambda one: one.seconds).name

    def __str__(self) -> str:
        lines = []
        for one in self.results:
            on_device = "" if one.device_s is None else f", {duration(one.device_s)} on the device"
            mostly = f"; mostly {one.operators[0][0]}" if one.operators else ""
            ratio = times_interval(one.ratio, one.ratio_low, one.ratio_high, 2)
            lines.append(f"{one.name}: {duration(one.seconds)}{on_device}, {ratio} as fast{mostly}")
        return "\n".join(lines)


def compare_implementations(
    functions: Mapping[str, Callable[..., object]], *args: Any, rounds: int = 9, **kwargs: Any
) -> Implementations:
    """Time callables on the same arguments, in turns, and say how much faster each is than the first.

    Each is called twice before the clock starts. In every round each is measured once, in alternating order,
    so that a disturbance of the machine hits all of them; ratios are taken within a round. The device is
    synchronized before and after each measurement. A last pass under torch.profiler finds device time and
    operators.
    """
    if not functions:
        raise UsageError("give at least one callable: compare_implementations({'mine': f, 'other': g}, x)")
    if rounds < 2:
        raise UsageError(f"rounds must be >= 2, got {rounds}")
    calls = {name: _calls_needed(function, args, kwargs) for name, function in functions.items()}
    measured: dict[str, list[float]] = {name: [] for name in functions}
    names = list(functions)
    for number in range(rounds):
        for name in turn_order(names, number):
            measured[name].append(_measure(functions[name], args, kwargs, calls[name]))
    first = measured[names[0]]
    return Implementations(
        tuple(_result(name, measured[name], first, functions[name], args, kwargs) for name in names)
    )


def _calls_needed(function: Callable[..., object], args: Any, kwargs: Any) -> int:
    for _ in range(2):  # compile, allocate, fill caches
        function(*args, **kwargs)
    once_s = _measure(function, args, kwargs, 1)
    return max(1, min(math.ceil(_LEAST_S / max(once_s, 1e-9)), _MOST_CALLS))


def _measure(function: Callable[..., object], args: Any, kwargs: Any, calls: int) -> float:
    _synchronize()
    begun = time.perf_counter()
    for _ in range(calls):
        function(*args, **kwargs)
    _synchronize()
    return (time.perf_counter() - begun) / calls


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _result(
    name: str,
    seconds: list[float],
    first: list[float],
    function: Callable[..., object],
    args: Any,
    kwargs: Any,
) -> Implementation:
    middle = statistics.median(seconds)
    spread = half_width(seconds)
    logs = [math.log(a / b) for a, b in zip(first, seconds, strict=True)]
    ratio, doubt = statistics.median(logs), half_width(logs)
    device_s, operators = _profiled(function, args, kwargs)
    return Implementation(
        name,
        middle,
        max(middle - spread, 0.0),
        middle + spread,
        math.exp(ratio),
        math.exp(ratio - doubt),
        math.exp(ratio + doubt),
        device_s,
        operators,
    )


def _profiled(
    function: Callable[..., object], args: Any, kwargs: Any
) -> tuple[float | None, tuple[tuple[str, float], ...]]:
    """Device seconds of one call, and the operators by their share of the time."""
    with profiler.profile() as profiled:
        function(*args, **kwargs)
        _synchronize()
    on_device = torch.cuda.is_available()
    events = profiled.key_averages()
    spent = {
        event.key: (event.self_device_time_total if on_device else event.self_cpu_time_total) / 1e6
        for event in events
    }
    total = sum(spent.values())
    largest = sorted(spent.items(), key=lambda one: -one[1])[:3]
    shares = tuple((name, value / total) for name, value in largest if total and value > 0)
    return (total if on_device else None), shares
