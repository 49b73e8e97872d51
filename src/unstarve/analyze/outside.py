"""Timeline → the part of a process's wall time that the budget does not cover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unstarve.analyze.timeline import Timeline
from unstarve.model import Outside, Run

_BEFORE, _WARMUP, _VALIDATION, _AFTER = "before training", "warm-up", "validation", "after training"


def wall_of(run: Run, timeline: Timeline) -> tuple[int, int]:
    """When a training process began and ended, by its own clock.

    It begins with the command, or with its first loader where that moment does not fit the record. It ends
    when it closes its record, or with its last event where it never did.
    """
    process, first, last = timeline.process, timeline.spans[0], timeline.spans[-1]
    known_ns = min(process.start_ns, first.begin_ns)
    command_ns = round(run.started_at * 1e9) - process.clock_offset_ns
    begin_ns = command_ns if run.started_at and 0 <= command_ns <= known_ns else known_ns
    return begin_ns, max(process.end_ns or 0, last.end_ns)


def outside_of(run: Run, timeline: Timeline) -> dict[str, float]:
    """Seconds before training, of warm-up, of validation and after training.

    With the measured part they sum to the wall time.
    """
    begin_ns, end_ns = wall_of(run, timeline)
    own = timeline.own
    first_ns = own[0].begin_ns
    measured = timeline.measured
    from_ns, to_ns = (measured[0].begin_ns, measured[-1].end_ns) if measured else (own[-1].end_ns,) * 2
    validation = [span for span in timeline.spans if span.validation is not None]

    def rest(since_ns: int, until_ns: int) -> float:
        cut = (span.within(since_ns, until_ns).seconds for span in validation)
        return (until_ns - since_ns) / 1e9 - sum(seconds for seconds in cut if seconds > 0)

    return {
        _BEFORE: rest(begin_ns, first_ns),
        _WARMUP: rest(first_ns, from_ns),
        _VALIDATION: sum(span.seconds for span in validation),
        _AFTER: rest(to_ns, end_ns),
    }


def mean_outside(parts: Sequence[Mapping[str, float]]) -> tuple[Outside, ...]:
    """The mean over ranks; what did not happen is left out."""
    places = parts[0] if parts else ()
    means = [Outside(place, sum(part[place] for part in parts) / len(parts)) for place in places]
    return tuple(one for one in means if one.seconds > 0)
