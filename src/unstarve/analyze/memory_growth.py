"""Whether a quantity grew for as long as it was watched: a leak does, a cache that fills does not.

The slope is Theil and Sen's, the median of the slopes between all pairs of points, which jumps and outliers
hardly move; its interval is Sen's. Neither knows that memory in use at one moment depends on the moment
before, so growth only counts as lasting if it also shows in the second half alone and does not slow down.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from statistics import median

import numpy as np

from unstarve.model import MemoryGrowth, Process, Trend
from unstarve.model.memory_looks import MemoryLook

_WARMUP = 0.2
"""Share of the time in which queues, caches and allocators fill: it does not count."""
_FEWEST = 6
"""Points after the warm-up. Half of them already make an interval."""
_FEWEST_BATCHES = 20
_MOST = 150
"""Points that are compared with each other."""
_Z95 = 1.96
_STEADY = 0.5
"""Between the last two thirds of the time, a quantity that still grows gains at least this part of what it
gained between the first two. A cache that has all but filled gains less."""

Points = Sequence[tuple[float, float]]
"""Progress and value, in the order of time."""
Readings = Sequence[tuple[int, float]]
"""Time in nanoseconds and value, in the order of time."""


def trend_in(process: Process, readings: Readings) -> Trend | None:
    """How a quantity of a process grows; None with too few readings to tell.

    Growth is compared with the batches that the process made or received, where they are known: a training
    that slows down leaks more slowly, but leaks all the same.
    """
    done = [(b.last_ns, b.weight) for b in process.batches if not b.nested]
    done = done or [(work.done_ns, work.weight) for work in process.works]
    moments, numbers = [at_ns for at_ns, _ in done], [0, *accumulate(number for _, number in done)]
    if numbers[-1] < _FEWEST_BATCHES:
        return trend_of([(at_ns / 1e9, value) for at_ns, value in readings])
    seconds = (readings[-1][0] - readings[0][0]) / 1e9 if readings else 0.0
    return trend_by_batch(
        [(float(numbers[bisect_right(moments, at_ns)]), value) for at_ns, value in readings], seconds
    )


def trend_by_batch(points: Points, seconds: float) -> Trend | None:
    """The same for values over the number of batches, which came in `seconds`."""
    trend = trend_of(points)
    if trend is None or seconds <= 0:
        return None
    per_s = (points[-1][0] - points[0][0]) / seconds
    return trend._replace(
        per_s=trend.per_s * per_s, low=trend.low * per_s, high=trend.high * per_s, per_batch=trend.per_s
    )


def trend_of(points: Points) -> Trend | None:
    """How a quantity grows with progress: seconds, or batches."""
    if len(points) < _FEWEST:
        return None
    first_s, last_s = points[0][0], points[-1][0]
    begin_s = first_s + _WARMUP * (last_s - first_s)
    later = [point for point in points if point[0] >= begin_s]
    if len(later) < _FEWEST or last_s <= first_s:
        return None
    thinned = later[:: math.ceil(len(later) / _MOST)]
    per_s, low, high = theil_sen(thinned)
    half = [point for point in thinned if point[0] >= (thinned[0][0] + thinned[-1][0]) / 2]
    lasting = low > 0 and len(half) > 2 and theil_sen(half)[1] > 0 and _is_steady(thinned)
    return Trend(per_s, low, high, points[-1][1] - points[0][1], points[-1][1], lasting)


def theil_sen(points: Points) -> tuple[float, float, float]:
    """The median slope, and the ends of its 95 % interval."""
    at, value = (np.asarray(column, dtype=float) for column in zip(*points, strict=True))
    first, second = np.triu_indices(len(points), 1)
    apart = at[second] - at[first]
    slopes = np.sort((value[second] - value[first])[apart > 0] / apart[apart > 0])
    if not len(slopes):
        return 0.0, 0.0, 0.0
    count = len(points)
    spread = _Z95 * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low = max(int((len(slopes) - spread) / 2), 0)
    return float(np.median(slopes)), float(slopes[low]), float(slopes[len(slopes) - 1 - low])


def _is_steady(points: Points) -> bool:
    """Whether it grows from third to third of the time without slowing down much."""
    first_s, length_s = points[0][0], (points[-1][0] - points[0][0]) / 3
    thirds = [
        [value for at, value in points if first_s + i * length_s <= at <= first_s + (i + 1) * length_s]
        for i in range(3)
    ]
    if not all(thirds):
        return False
    early, middle, late = (sum(third) / len(third) for third in thirds)
    return middle > early and late - middle >= _STEADY * (middle - early)


def readings_of(process: Process, value: Callable[[MemoryLook], int | None]) -> Readings:
    """One field of the looks at a process."""
    return [(look.at_ns, float(v)) for look in process.memory.looks if (v := value(look)) is not None]


def growth_in(process: Process, value: Callable[[MemoryLook], int | None]) -> Trend | None:
    """How one field of the looks at a process grows."""
    return trend_in(process, readings_of(process, value))


def common_trend(trends: Iterable[Trend | None]) -> Trend | None:
    """The trend of similar processes: their median; lasting if it is for most of those that can be judged."""
    known = [trend for trend in trends if trend is not None]
    if not known:
        return None
    lasting = [trend for trend in known if trend.lasting]
    most = len(lasting) * 2 > len(known)
    chosen = lasting if most else known
    numbers = [(trend.per_s, trend.low, trend.high, trend.grown, trend.last) for trend in chosen]
    per_s, low, high, grown, last = map(median, zip(*numbers, strict=True))
    per_batch = [trend.per_batch for trend in chosen if trend.per_batch is not None]
    return Trend(per_s, low, high, grown, last, most, median(per_batch) if per_batch else None)


def allocated(look: MemoryLook) -> int | None:
    """Memory that the process has allocated itself, or shares with the one it was forked from."""
    return look.anonymous_bytes


def copied(look: MemoryLook) -> int | None:
    """Changes when a forked process writes to pages that it shared until then, and only then."""
    if look.dirty_bytes is None or look.anonymous_bytes is None:
        return None
    return look.dirty_bytes - look.anonymous_bytes


def is_worker_of(worker: Process, training: Process) -> bool:
    """Whether a process is one of this training's workers."""
    return worker.host == training.host and any(worker.pid in crew.pids for crew in training.crews)


def lasting_growth(training: Process, workers: Sequence[Process]) -> tuple[MemoryGrowth, ...]:
    """What has grown to the end, in the training process and in its workers."""
    trends = {
        ("training", "allocated"): growth_in(training, allocated),
        ("training", "/dev/shm"): growth_in(training, lambda look: look.shm_bytes),
        ("training", "descriptors"): growth_in(training, lambda look: look.descriptors),
        ("workers", "allocated"): common_trend(growth_in(worker, allocated) for worker in workers),
        ("workers", "copied"): common_trend(growth_in(worker, copied) for worker in workers),
    }
    return tuple(
        MemoryGrowth(who, what, trend.per_s, trend.low, trend.high, trend.grown, trend.per_batch)
        for (who, what), trend in trends.items()
        if trend is not None and trend.lasting
    )
