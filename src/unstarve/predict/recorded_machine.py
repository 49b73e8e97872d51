"""The machine as a run saw it: cores, what the step itself keeps busy, and who else was there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unstarve.analyze.timeline import Timeline
from unstarve.model import Process, Run
from unstarve.predict.seen_batches import Seen, slowdown_of

_MOST_LOCAL_RANKS = 8
_SHORTEST_NS = 500_000_000
"""Two readings of a clock that ticks a hundred times a second must lie this far apart."""
_FEWEST_CORES = 0.05


@dataclass(frozen=True, slots=True)
class Machine:
    """What the loader runs on."""

    cores: float
    foreign: float | None
    """Cores' worth of time that other people's processes got; None when nobody counted."""
    grouped: bool
    """The kernel shares cores between sessions or containers first, then inside of them."""
    step_threads: float
    """Threads that a step keeps busy while the training thread computes."""
    slowdown: float
    """How much longer than alone the recorded CPU work took."""
    late_share: float = 0.0
    """Part of the moments in line for a core before short work that others cause: they stay with any crew."""


def machine_of(run: Run, timeline: Timeline, seen: Sequence[Seen]) -> Machine:
    """From what the training process and its workers recorded of themselves and of the machine."""
    process = timeline.process
    limits = [float(process.system[key]) for key in ("cores", "quota_cores") if process.system.get(key)]
    usable = max(min(limits, default=1.0), _FEWEST_CORES)
    ranks = sum(1 for p in run.processes if not p.worker and p.batches and p.host == process.host)
    ranks = min(max(ranks, 1), _MOST_LOCAL_RANKS)
    used = _foreign_cores(run, process)
    # Where nobody counted, a queue of more workers than cores is taken for their own.
    crew = max((len(crew.pids) for crew in process.crews), default=0)
    late_share = float(crew <= usable) if used is None else min(2 * used / usable, 1.0)
    beyond = float(process.system.get("cores") or usable) - usable  # a quota keeps us off these, not others
    return Machine(
        cores=usable / ranks,
        foreign=None if used is None else max(used - beyond, 0.0) / ranks,
        grouped=bool(process.system.get("grouped", True)),
        step_threads=_step_threads(process, seen),
        slowdown=slowdown_of(seen, late_share),
        late_share=late_share,
    )


def _foreign_cores(run: Run, process: Process) -> float | None:
    """Cores' worth of time that other people's processes got; None where we may not use all cores."""
    readings = _readings(process)
    if readings is None:
        return None
    before, now = readings
    if None in (before["machine_cpu_s"], now["machine_cpu_s"]):
        return None
    if process.system.get("cores") != now["machine_cores"]:
        return None
    ours = [other for other in run.processes if other.host == process.host]
    own_s = sum(_cpu_between(other, before["at_ns"], now["at_ns"]) for other in ours)
    passed_s: float = (now["at_ns"] - before["at_ns"]) / 1e9
    busy_s: float = now["machine_cpu_s"] - before["machine_cpu_s"]
    return max(busy_s - own_s, 0.0) / passed_s


def _readings(process: Process) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """The first and the last of what the process has used, if they lie far enough apart."""
    before, now = process.system.get("usage_before"), process.system.get("usage")
    if not before or not now or now["at_ns"] - before["at_ns"] < _SHORTEST_NS:
        return None
    return before, now


def _cpu_between(process: Process, begin_ns: int, end_ns: int) -> float:
    """CPU seconds of a process between two moments, as if it had used its time evenly."""
    now = process.system.get("usage")
    if not now:
        return 0.0
    before = process.system.get("usage_before") or now
    # A worker is recorded from its birth on; a training process has imported and built things before.
    first_ns, first_s = (
        (process.start_ns, 0.0) if process.worker else (before["at_ns"], before["process_cpu_s"])
    )
    inside_ns = max(min(end_ns, now["at_ns"]) - max(begin_ns, first_ns), 0)
    lived_ns = now["at_ns"] - first_ns
    return float(now["process_cpu_s"] - first_s) * inside_ns / lived_ns if lived_ns > 0 else 0.0


def _step_threads(process: Process, seen: Sequence[Seen]) -> float:
    """Threads that compute at once in a step; 1 where only the training thread's time is known."""
    readings = _readings(process)
    if readings is None:
        return 1.0
    begin_ns, end_ns = (reading["at_ns"] for reading in readings)
    inside = [s for s in seen if begin_ns <= s.batch.got_ns and s.after.got_ns <= end_ns]
    covered_ns = sum(s.after.got_ns - s.batch.got_ns for s in inside)
    running_ns = sum(s.after.ask_ns - s.batch.got_ns - (s.after.step_queued_ns or 0) for s in inside)
    if not inside or running_ns <= 0:
        return 1.0
    spent_s = readings[1]["process_cpu_s"] - readings[0]["process_cpu_s"]
    spent_ns = spent_s * 1e9 * covered_ns / (end_ns - begin_ns)
    in_waits_ns = sum(s.after.wait_cpu_ns for s in inside)
    return max(float(spent_ns - in_waits_ns) / running_ns, 1.0)
