"""Stalls and the driver's record → what the accelerator did over the measured part of a run."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise

from unstarve.analyze.timeline import Timeline, TimeSpan
from unstarve.model import Engines, GpuSummary, Reading, Stall

_MOST_UNSEEN = 0.05
"""Largest share of the measured time that may be waits not observed on the device."""
_FEWEST_READ_S = 1.0
_FEWEST_READ = 0.5
"""Smallest share of the measured time that the driver's readings must cover."""

Stretch = tuple[int, int]


def summarize_gpu(timelines: Sequence[Timeline]) -> GpuSummary | None:
    """The `gpu` block of the report; None when no device was observed."""
    seen = [t for t in timelines if t.measured and (t.process.stalls or t.process.readings)]
    if not seen:
        return None
    stall = _mean_over([(stall_share(t), t.measured_s) for t in seen])
    utilization = _mean_over([(utilization_share(t), t.measured_s) for t in seen])
    # With other processes on the device, its idle time says nothing about this training.
    alone = not any(reading.shared for t in seen for reading in t.process.readings)
    idle = None if utilization is None or not alone else 1 - utilization
    if idle is not None and stall is not None:
        idle = max(idle, stall)  # stalls are exact, the driver's readings are not
    readings = [r for t in seen for r in t.process.readings if r.memory_used_bytes is not None]
    fullest = max(readings, key=lambda r: r.memory_used_bytes or 0, default=None)
    return GpuSummary(
        stall_share=stall,
        idle_share=idle,
        host_late_share=None if idle is None or stall is None else idle - stall,
        utilization=utilization,
        memory_used_bytes=fullest.memory_used_bytes if fullest else None,
        memory_total_bytes=fullest.memory_total_bytes if fullest else None,
        devices=sum(len({s.device for s in t.process.stalls} or {0}) for t in seen),
        allocated_peak_bytes=_largest([t.process.allocated_peak_bytes for t in seen]),
        reserved_peak_bytes=_largest([t.process.reserved_peak_bytes for t in seen]),
        power_w=_mean_reading(seen, lambda one: None if one.power_mw is None else one.power_mw / 1e3),
        received_bytes_per_s=_mean_reading(seen, lambda one: one.received_bytes_per_s),
        sent_bytes_per_s=_mean_reading(seen, lambda one: one.sent_bytes_per_s),
        jpeg_engine_share=_mean_reading(seen, lambda one: one.jpeg_share),
    )


def _mean_reading(timelines: Sequence[Timeline], value: Callable[[Engines], float | None]) -> float | None:
    """The mean of a value over the measured time, and over the devices; None if no driver knows it."""
    means = []
    for t in timelines:
        windows = _windows(t.measured)
        by_device: defaultdict[int, list[float]] = defaultdict(list)
        for one in t.process.engines:
            found = value(one)
            if found is not None and any(begin <= one.at_ns <= end for begin, end in windows):
                by_device[one.device].append(found)
        means += [sum(values) / len(values) for values in by_device.values()]
    return sum(means) / len(means) if means else None


def _largest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def stall_share(timeline: Timeline) -> float | None:
    """Share of the measured time in which a process's devices were starved, averaged over devices.

    None when too much waiting was not observed on the device: while a CUDA graph was captured, before the
    device was first used, or when the loader was consumed in another thread.
    """
    windows = _windows(timeline.measured)
    measured_ns = sum(end - begin for begin, end in windows)
    by_device: defaultdict[int, list[Stall]] = defaultdict(list)
    for stall in _inside(timeline.process.stalls, windows):
        by_device[stall.device].append(stall)
    shares = []
    waited_ns = timeline.wait_s * 1e9
    for stalls in by_device.values():
        seen_ns = sum(stall.wait_ns for stall in stalls)
        if measured_ns and waited_ns - seen_ns <= _MOST_UNSEEN * measured_ns:
            # A device event fires slightly after its host event: a stall is never longer than its wait.
            shares.append(sum(min(s.stall_ns, s.wait_ns) for s in stalls) / measured_ns)
    return sum(shares) / len(shares) if shares else None


def utilization_share(timeline: Timeline) -> float | None:
    """The driver's utilization over the measured time, averaged over devices; None with few readings."""
    measured_until = _measured_until(_windows(timeline.measured))
    fewest_s = max(_FEWEST_READ_S, _FEWEST_READ * timeline.measured_s)
    by_device: defaultdict[int, list[Reading]] = defaultdict(list)
    for reading in timeline.process.readings:
        if reading.utilization is not None:
            by_device[reading.device].append(reading)
    shares = []
    for readings in by_device.values():
        pairs = list(pairwise(sorted(readings, key=lambda r: r.at_ns)))
        covers = [measured_until(b.at_ns) - measured_until(a.at_ns) for a, b in pairs]
        covered_s = sum(covers) / 1e9
        if covered_s >= fewest_s:
            busy_s = sum(c * (b.utilization or 0.0) for c, (_, b) in zip(covers, pairs, strict=True)) / 1e9
            shares.append(busy_s / covered_s)
    return sum(shares) / len(shares) if shares else None


def _windows(spans: Sequence[TimeSpan]) -> list[Stretch]:
    """The measured time as stretches without gaps."""
    windows: list[Stretch] = []
    for span in spans:
        if windows and span.begin_ns <= windows[-1][1]:
            windows[-1] = (windows[-1][0], max(windows[-1][1], span.end_ns))
        else:
            windows.append((span.begin_ns, span.end_ns))
    return windows


def _inside(stalls: Iterable[Stall], windows: Sequence[Stretch]) -> Iterable[Stall]:
    """The stalls that end in a window, in one pass over both."""
    at = 0
    for stall in sorted(stalls, key=lambda s: s.got_ns):
        while at < len(windows) and windows[at][1] < stall.got_ns:
            at += 1
        if at < len(windows) and windows[at][0] < stall.got_ns:
            yield stall


def _measured_until(windows: Sequence[Stretch]) -> Callable[[int], int]:
    """A function of time: how much of the windows lies before it."""
    ends = [end for _, end in windows]
    before = list(accumulate((end - begin for begin, end in windows), initial=0))

    def until(at_ns: int) -> int:
        ended = bisect_right(ends, at_ns)
        return before[ended] + (max(at_ns - windows[ended][0], 0) if ended < len(windows) else 0)

    return until


def _mean_over(shares: Sequence[tuple[float | None, float]]) -> float | None:
    """Mean weighted by time; None when any rank's value is unknown."""
    known = [(share, weight) for share, weight in shares if share is not None]
    total = sum(weight for _, weight in known)
    if len(known) < len(shares) or not total:
        return None
    return sum(share * weight for share, weight in known) / total
