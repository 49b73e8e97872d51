"""Allocations that torch.profiler saw → memory over time, and who allocated it."""

from __future__ import annotations

import numpy as np

from unstarve.importers.capture import Capture, Times
from unstarve.importers.phases import PHASES
from unstarve.model.profile import AllocatedBy, DeviceMemory

_MOST_POINTS = 300
_MOST_OPERATORS = 30
_CPU = 0
_TYPES = {_CPU: "cpu", 1: "cuda", 6: "hip", 12: "xpu", 13: "mps"}
"""torch's ``DeviceType``."""
_DEVICES = 1 << 10
UNKNOWN = -1
"""A total that the trace does not have."""


def device_number(kind: int, index: int) -> int:
    """One number for a device: its type and its index; −1 is the only device of its type."""
    return kind * _DEVICES + index + 1


def memory_of(
    capture: Capture, low: int, high: int, phases: Times, operators: Times
) -> tuple[DeviceMemory, ...]:
    """Memory of each device between two moments, the fullest first.

    `phases` and `operators` belong to the events of ``capture.memory``: the number of the phase, and of the
    name of the innermost operator around it, −1 without one.
    """
    events = capture.memory
    inside = (events.begin >= low) & (events.begin <= high)
    found = []
    for number in np.unique(events.of("device")[inside]):
        mine = np.flatnonzero(inside & (events.of("device") == number))
        mine = mine[np.argsort(events.begin[mine], kind="stable")]
        found.append(_device(capture, int(number), mine, low, phases, operators))
    return tuple(sorted(found, key=lambda one: -one.peak_bytes))


def _device(
    capture: Capture, number: int, mine: Times, low: int, phases: Times, operators: Times
) -> DeviceMemory:
    events = capture.memory
    moments, changes = events.begin[mine], events.of("bytes")[mine]
    allocated, reserved = events.of("allocated")[mine], events.of("reserved")[mine]
    kind, index = divmod(number, _DEVICES)
    # Old traces have no totals, and those of a CPU leave out shared memory and what was there before.
    told = kind != _CPU and bool((allocated != UNKNOWN).all())
    if not told:
        summed = np.cumsum(changes)
        allocated = summed - min(int(summed.min()), 0)
    peak = int(allocated.argmax())
    has_reserved = told and bool((reserved > 0).any())
    kept = _thinned(moments, allocated)
    name = _TYPES.get(kind, f"device type {kind}")
    texts = capture.names.texts
    return DeviceMemory(
        device=name if index == 0 else f"{name}:{index - 1}",
        relative=not told,
        peak_bytes=int(allocated[peak]),
        peak_at_s=int(moments[peak] - low) / 1e9,
        reserved_bytes=int(reserved[peak]) if has_reserved else None,
        unused_bytes=max(int(reserved[peak] - allocated[peak]), 0) if has_reserved else None,
        at_s=tuple(((moments[kept] - low) / 1e9).tolist()),
        allocated=tuple(allocated[kept].tolist()),
        reserved=tuple(np.maximum(reserved[kept], 0).tolist()) if has_reserved else (),
        by_phase=_by(phases[mine], changes, list(PHASES)),
        by_operator=_by(operators[mine], changes, texts)[:_MOST_OPERATORS],
    )


def _thinned(moments: Times, values: Times) -> Times:
    """Where the largest and the last value of each of a few equal stretches of time are."""
    if len(moments) <= _MOST_POINTS:
        return np.arange(len(moments))
    span = max(int(moments[-1] - moments[0]), 1)
    stretch = (moments - moments[0]) // (span // (_MOST_POINTS // 2) + 1)
    by_value = np.lexsort((values, stretch))
    ends = np.flatnonzero(np.r_[stretch[1:] != stretch[:-1], True])
    kept: Times = np.unique(np.r_[by_value[ends], ends])
    return kept


def _by(groups: Times, changes: Times, names: list[str]) -> tuple[AllocatedBy, ...]:
    """Allocations of each group, the largest first."""
    numbers, at = np.unique(groups, return_inverse=True)
    added = np.maximum(changes, 0)
    sums = np.zeros((3, len(numbers)), np.int64)
    for row, values in zip(sums, (changes > 0, added, changes), strict=True):
        np.add.at(row, at, values)
    calls, allocated, net = sums.tolist()
    found = [
        AllocatedBy("no operator" if number < 0 else names[number], calls[i], allocated[i], net[i])
        for i, number in enumerate(numbers.tolist())
        if allocated[i]
    ]
    return tuple(sorted(found, key=lambda one: -one.allocated_bytes))
