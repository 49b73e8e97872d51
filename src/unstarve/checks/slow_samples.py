"""Time samples alone, without workers, and name those that take far longer than the others."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch.utils.data import IterableDataset

from unstarve.checks.names import Names
from unstarve.collect import file_opens
from unstarve.collect.sample_files import sample_file
from unstarve.model.checks import finding
from unstarve.model.finding import Finding
from unstarve.words import duration, percent

_OUTLIER = 5.0
"""Times the median."""
_LEAST_S = 0.005
"""A sample that takes less is not slow, whatever the others take."""
_AGAIN = 2
"""A sample counts with the fastest of this many further tries: a busy machine makes any sample slow once."""
_MOST_NAMED = 5


class SampleTime(NamedTuple):
    """One sample."""

    at: int
    """Its index."""
    seconds: float
    file: str | None


@dataclass(frozen=True, slots=True)
class SampleTimes:
    """The samples of one dataset that were timed."""

    times: tuple[SampleTime, ...]
    length: int

    @property
    def median_s(self) -> float:
        return statistics.median(one.seconds for one in self.times)

    @property
    def outliers(self) -> tuple[SampleTime, ...]:
        """The samples that stand out, the slowest first."""
        least_s = max(_OUTLIER * self.median_s, _LEAST_S) if self.times else 0.0
        slow = [one for one in self.times if one.seconds > least_s]
        return tuple(sorted(slow, key=lambda one: -one.seconds))

    def findings(self, names: Names) -> Iterator[Finding]:
        """The finding about the outliers; none where all samples are alike."""
        slow = self.outliers
        if not slow:
            return
        share = sum(one.seconds for one in slow) / sum(one.seconds for one in self.times)
        named = ", ".join(_named(one, names.dataset) for one in slow[:_MOST_NAMED])
        more = f" and {len(slow) - _MOST_NAMED} more" if len(slow) > _MOST_NAMED else ""
        one = len(slow) == 1
        yield finding(
            "slow-sample",
            f"{len(slow)} of {len(self.times)} timed samples of {names.dataset} {'takes' if one else 'take'} "
            f"more than 5 times the median of {duration(self.median_s)}: {named}{more}. "
            f"{'It takes' if one else 'Together they take'} {percent(share)} of the time.",
            f"Convert {'this sample' if one else 'these samples'} once, before training (smaller, or into "
            f"the format of the others), or leave {'it' if one else 'them'} out.",
            file=names.file,
            line=names.line,
            harm=share,
        )


def _named(one: SampleTime, dataset: str) -> str:
    file = "" if one.file is None else f" ({one.file})"
    return f"{dataset}[{one.at}]{file} {duration(one.seconds)}"


def time_samples(dataset: Any, count: int) -> SampleTimes | None:
    """Time `count` samples, evenly spread over the dataset; None for a stream or an empty dataset.

    Raises what the dataset raises.
    """
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        return None
    length = len(dataset)
    if not length:
        return None
    file_opens.install()
    dataset[0]  # what the first sample opens and imports is not its own time
    times = [_timed(dataset, index) for index in _spread(length, count)]
    alike = SampleTimes(tuple(times), length)
    again = {one.at: _again(dataset, one) for one in alike.outliers}
    return SampleTimes(tuple(again.get(one.at, one) for one in times), length)


def _spread(length: int, count: int) -> Sequence[int]:
    """`count` indices from 0 to the last one, or all of them.

    >>> _spread(10, 4)
    [0, 3, 6, 9]
    """
    count = min(count, length)
    return [round(place * (length - 1) / max(count - 1, 1)) for place in range(count)]


def _timed(dataset: Any, index: int) -> SampleTime:
    file_opens.last = None
    file_opens.counting = True
    try:
        began_s = time.perf_counter()
        dataset[index]
        seconds = time.perf_counter() - began_s
    finally:
        file_opens.counting = False
    return SampleTime(index, seconds, sample_file(dataset, index, file_opens.last))


def _again(dataset: Any, one: SampleTime) -> SampleTime:
    tries = [one, *(_timed(dataset, one.at) for _ in range(_AGAIN))]
    return one._replace(seconds=min(other.seconds for other in tries))
