"""Waits as they are marked on the streams of a device, and the stall between two marks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

What = tuple[int, int, int, int]
"""Identifies a wait: loader, kind (`BATCH_WAIT`, …), epoch, position."""
StreamKey = tuple[int, int, int]
"""Id, device, kind of device: how torch identifies a stream."""


class StreamLane(NamedTuple):
    """A stream to mark waits on."""

    device: int
    stream: torch.cuda.Stream
    free: list[torch.cuda.Event]
    """Events of the device that can be reused."""


class MarkingPlan(NamedTuple):
    """Where waits are marked, as long as training stays on the same streams."""

    lanes: tuple[StreamLane, ...]
    current: tuple[StreamKey, ...]
    """Each device's current stream."""
    current_device: int | None
    """None where optimizers have shown which devices count."""


Events = list[torch.cuda.Event]
"""One event on each lane; empty where the device was idle when the wait began."""
Mark = tuple[MarkingPlan, Events]
"""A wait that has begun."""
Waited = tuple[Mark, Events, What, int, int]
"""A wait that is over but whose events may not have fired: its mark, the events at its end, which wait it is,
its beginning and end on the host's clock. A plain tuple: one is made for every batch."""


def stalls_of(
    mark: Mark, got: Events, wait_ns: int, elapsed_ms: Callable[..., float]
) -> list[tuple[int, int]]:
    """Device and nanoseconds: a device is idle while all of its streams are."""
    lanes, asked = mark[0].lanes, mark[1]
    if not asked:
        return [(device, wait_ns) for device in dict.fromkeys(lane.device for lane in lanes)]
    if len(got) == 1:
        return [(lanes[0].device, max(round(elapsed_ms(asked[0], got[0]) * 1e6), 0))]
    found: dict[int, float] = {}
    for asked_lane, asked_event in zip(lanes, asked, strict=True):
        for got_lane, got_event in zip(lanes, got, strict=True):
            if asked_lane.device == got_lane.device:
                ms = elapsed_ms(asked_event, got_event)
                found[got_lane.device] = min(ms, found.get(got_lane.device, ms))
    return [(device, max(round(ms * 1e6), 0)) for device, ms in found.items()]


def recycle(mark: Mark, got: Events) -> None:
    """Let the events be reused on their device."""
    plan, asked = mark
    for events in (asked, got):
        for lane, event in zip(plan.lanes, events, strict=False):
            lane.free.append(event)
