"""Two runs → their difference compared to the noise, and whether a gate fails."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence

from unstarve.analyze.diagnose import analyze_run
from unstarve.analyze.operator_changes import operator_changes
from unstarve.analyze.stats import mean_estimate
from unstarve.analyze.timeline import WARMUP_STEPS, Timeline, timelines_of
from unstarve.errors import UsageError
from unstarve.model import Batch, Change, Comparison, Diagnosis, Gate, Row, Run
from unstarve.words import mean_count, percent, points, times_interval

_BLOCKS = 10
_FEWEST_BLOCK_STEPS = 3
_WORTH_TELLING = 1.02
"""Smallest ratio by which throughput and step mean disagree."""
_SAMPLES, _STEPS = "samples/s", "steps/s"

_EXPRESSION = re.compile(r"\s*(\w+)\s*(<=|>=|<|>)\s*([+-]?\d+(?:\.\d+)?)\s*(%|pt)?\s*")
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


def compare(run_a: Run, run_b: Run, gates: Sequence[str] = ()) -> Comparison:
    """B compared to A. Raises `UsageError` for a gate that cannot be parsed."""
    a, b = analyze_run(run_a), analyze_run(run_b)
    rows = _rows(a, b)
    change = _change(rows[0], run_a, run_b)
    checks = tuple(_check(gate, rows, change) for gate in gates)
    on_cpu = a.device == b.device == "cpu"
    shown = tuple(row for row in rows if not (on_cpu and row.metric == "stall_share"))
    return Comparison(
        a,
        b,
        change,
        _headline(change, rows[0].unit),
        shown,
        checks,
        _notes(a, b, rows[0]),
        operator_changes(a.profile, b.profile),
    )


def _rows(a: Diagnosis, b: Diagnosis) -> tuple[Row, ...]:
    def pick(metric: str, unit: str, label: str, of: Callable[[Diagnosis], float | None]) -> Row:
        return Row(metric, unit, of(a), of(b), label)

    # A batch may be empty, and so may be all of them.
    by_samples = bool(a.throughput.samples_per_s and b.throughput.samples_per_s)
    throughput = (
        pick("throughput", _SAMPLES, "throughput", lambda d: d.throughput.samples_per_s)
        if by_samples
        else pick("throughput", _STEPS, "throughput", lambda d: d.throughput.steps_per_s)
    )
    waiting = "waiting for data" if a.device == b.device == "cpu" else "host waited"
    step = "step + wait"
    return (
        throughput,
        pick("stall_share", "%", "GPU starved", lambda d: d.stall_share),
        pick("wait_share", "%", waiting, lambda d: d.wait_share),
        pick("step_mean", "ms", f"{step}, mean", lambda d: d.step_ms.mean if d.step_ms else None),
        pick("step_p50", "ms", f"{step}, p50", lambda d: d.step_ms.p50 if d.step_ms else None),
        pick("step_p95", "ms", f"{step}, p95", lambda d: d.step_ms.p95 if d.step_ms else None),
        pick("wait_p50", "ms", "wait, p50", lambda d: d.wait_ms.p50 if d.wait_ms else None),
        pick("wait_p95", "ms", "wait, p95", lambda d: d.wait_ms.p95 if d.wait_ms else None),
        pick("wait_max", "ms", "wait, longest", lambda d: d.wait_ms.max if d.wait_ms else None),
    )


def _change(throughput: Row, run_a: Run, run_b: Run) -> Change | None:
    """Ratio of the throughputs with a 95% interval from the spread between stretches of each run."""
    by_samples = throughput.unit == _SAMPLES
    errors = [_relative_error(run, by_samples=by_samples) for run in (run_a, run_b)]
    known = [error for error in errors if error is not None]
    if len(known) < len(errors) or not throughput.a or not throughput.b:
        return None
    ratio, half = throughput.b / throughput.a, math.hypot(*known)
    low, high = ratio * math.exp(-half), ratio * math.exp(half)
    return Change(ratio, low, high, shown=low > 1 or high < 1)


def _relative_error(run: Run, *, by_samples: bool) -> float | None:
    """Half the 95% interval of the first rank's throughput, relative to it; None for a short run.

    The error of a ratio of sums, from the residuals of up to ten equal stretches.
    """
    timelines = timelines_of(run, WARMUP_STEPS)
    delivered = _deliveries(timelines[0]) if timelines else []
    size = max((len(delivered) - 1) // _BLOCKS, 1 if run.kind == "import" else _FEWEST_BLOCK_STEPS)
    stretches = []
    for at in range(0, len(delivered) - size, size):
        taken = delivered[at + 1 : at + size + 1]
        seconds = taken[-1][0] - delivered[at][0]
        stretches.append(
            (
                sum(batch.size or 0 for _, batch in taken)
                if by_samples
                else sum(batch.weight for _, batch in taken),
                seconds,
            )
        )
    total, total_s = (sum(values) for values in zip(*stretches, strict=True)) if stretches else (0, 0.0)
    if len(stretches) < 2 or not total or not total_s:
        return None
    residuals = mean_estimate([seconds - total_s / total * done for done, seconds in stretches])
    return (residuals.high - residuals.low) / 2 / (total_s / len(stretches))


def _deliveries(timeline: Timeline) -> list[tuple[float, Batch]]:
    """The main loader's batches, each with the measured seconds until it was delivered."""
    found: dict[int, tuple[float, Batch]] = {}
    at_s = 0.0
    for span in timeline.measured:
        at_s += span.seconds
        if span.batch is not None and span.batch.loader == timeline.main:
            found[id(span.batch)] = (at_s, span.batch)
    return list(found.values())


def _headline(change: Change | None, unit: str) -> str:
    if change is None:
        return "One of the runs is too short to compare."
    ratio = times_interval(change.ratio, change.low, change.high, 2)
    measure = f"in {unit.replace('/s', ' per second')}"
    if not change.shown:
        return f"No difference shown: B runs at {ratio} the speed of A {measure}."
    if change.ratio >= 1:
        return f"B is {ratio} as fast as A {measure}."
    return f"B is slower: {ratio} the speed of A {measure}."


def _notes(a: Diagnosis, b: Diagnosis, throughput: Row) -> tuple[str, ...]:
    """What each number measures, where throughput and step mean change by different factors.

    Throughput is samples per step, times the share of the time inside steps, divided by the step mean.
    """
    notes = []
    if throughput.unit == _SAMPLES:
        per_step = [_ratio(d.throughput.samples_per_s, d.throughput.steps_per_s) for d in (a, b)]
        if _differ(*per_step):
            of_a, of_b = (mean_count(size or 0.0) for size in per_step)
            ranks = " (all ranks together)" if max(a.ranks, b.ranks) > 1 else ""
            notes.append(f"a step has {of_a} samples in A, {of_b} in B{ranks}: compare samples, not steps")
    inside = [
        None
        if d.step_ms is None or d.throughput.steps_per_s is None
        else min(d.throughput.steps_per_s * d.step_ms.mean / 1e3, 1.0)
        for d in (a, b)
    ]
    # A short run begins with a wait that belongs to no step, and ends without one.
    if _differ(*inside, by=_WORTH_TELLING + 2 / max(min(a.steps, b.steps), 1)):
        shares = ", ".join(
            f"{percent(1 - (share or 0.0))} of {run}" for share, run in zip(inside, "AB", strict=True)
        )
        notes.append(
            "throughput covers all measured time, the step mean only steps inside an epoch: starts of epochs "
            f"and the time between them are {shares}"
        )
    return tuple(notes)


def _ratio(value: float | None, by: float | None) -> float | None:
    return None if value is None or not by else value / by


def _differ(a: float | None, b: float | None, *, by: float = _WORTH_TELLING) -> bool:
    return a is not None and b is not None and min(a, b) > 0 and max(a, b) / min(a, b) > by


def _check(expression: str, rows: Sequence[Row], change: Change | None) -> Gate:
    """``METRIC OP NUMBER`` checks B; with ``%``, B's change from A; with ``pt``, in percentage points."""
    match = _EXPRESSION.fullmatch(expression)
    by_name = {row.metric: row for row in rows}
    if match is None or match[1] not in by_name:
        names = ", ".join(by_name)
        raise UsageError(
            f'cannot parse the gate "{expression}": expected a metric ({names}), an operator and a number, '
            'as in "throughput<-5%", "wait_share>+3pt" or "step_p95>200"'
        )
    row, compares, limit, unit = by_name[match[1]], _OPERATORS[match[2]], float(match[3]), match[4]
    if row.a is None or row.b is None:
        return Gate(expression, True, f"{row.metric} is not known for both runs")
    if unit == "%":
        value = (row.b / row.a - 1) * 100 if row.a else math.copysign(math.inf, row.b) if row.b else 0.0
        shown = f"{row.metric} changed by {value:+.1f}%"
    elif unit == "pt":
        value = (row.b - row.a) * 100
        shown = f"{row.metric} changed by {points(value / 100)}"
    else:
        value = row.b * 100 if row.unit == "%" and limit > 1 else row.b
        shown = f"{row.metric} is {value:.4g}"
    failed = compares(value, limit)
    if failed and row.metric == "throughput" and unit == "%" and change is not None and not change.shown:
        return Gate(expression, False, f"{shown}, which is within the noise")
    return Gate(expression, failed, shown)
