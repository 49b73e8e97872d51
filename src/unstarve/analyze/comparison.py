"""Two runs → their difference compared to the noise, and whether a gate fails."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence

from unstarve.analyze.diagnose import analyze_run
from unstarve.analyze.stats import mean_estimate
from unstarve.analyze.timeline import WARMUP_STEPS, timelines_of
from unstarve.errors import UsageError
from unstarve.model import Change, Comparison, Diagnosis, Gate, OperatorChange, Row, Run
from unstarve.model.profile import Profile
from unstarve.words import points, times_interval

_BLOCKS = 10
_MOST_OPERATORS = 10
_VISIBLE_CHANGE = 0.01
"""Smallest change of an operator's time, as a share of all operators' time."""
_FEWEST_BLOCK_STEPS = 3

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
    change = _change(run_a, run_b)
    checks = tuple(_check(gate, rows, change) for gate in gates)
    return Comparison(a, b, change, _headline(change), rows, checks, _operators(a.profile, b.profile))


def _operators(a: Profile | None, b: Profile | None) -> tuple[OperatorChange, ...]:
    """The operators whose time per step changed the most; none unless both runs were profiled."""
    if a is None or b is None:
        return ()
    on_device = bool(a.devices and b.devices)
    spent = [
        {
            one.name: ((one.device_s if on_device else one.self_s) or 0.0) / max(p.steps, 1)
            for one in p.operators
        }
        for p in (a, b)
    ]
    changes = [OperatorChange(name, *(side.get(name, 0.0) for side in spent)) for name in spent[0] | spent[1]]
    total_s = max(sum(side.values()) for side in spent)
    large = [one for one in changes if abs(one.b_s - one.a_s) >= _VISIBLE_CHANGE * total_s > 0]
    return tuple(sorted(large, key=lambda one: -abs(one.b_s - one.a_s))[:_MOST_OPERATORS])


def _rows(a: Diagnosis, b: Diagnosis) -> tuple[Row, ...]:
    def pick(metric: str, unit: str, of: Callable[[Diagnosis], float | None]) -> Row:
        return Row(metric, unit, of(a), of(b))

    by_samples = a.throughput.samples_per_s is not None and b.throughput.samples_per_s is not None
    throughput = (
        pick("throughput", "samples/s", lambda d: d.throughput.samples_per_s)
        if by_samples
        else pick("throughput", "steps/s", lambda d: d.throughput.steps_per_s)
    )
    return (
        throughput,
        pick("wait_share", "%", lambda d: d.wait_share),
        pick("step_mean", "ms", lambda d: d.step_ms.mean if d.step_ms else None),
        pick("step_p50", "ms", lambda d: d.step_ms.p50 if d.step_ms else None),
        pick("step_p95", "ms", lambda d: d.step_ms.p95 if d.step_ms else None),
        pick("wait_p50", "ms", lambda d: d.wait_ms.p50 if d.wait_ms else None),
        pick("wait_p95", "ms", lambda d: d.wait_ms.p95 if d.wait_ms else None),
        pick("wait_max", "ms", lambda d: d.wait_ms.max if d.wait_ms else None),
    )


def _change(run_a: Run, run_b: Run) -> Change | None:
    """Ratio of speeds with a 95% interval from the spread between stretches of each run."""
    speeds_a, speeds_b = _speeds(run_a), _speeds(run_b)
    by_samples = all(speed[1] for speed in (*speeds_a, *speeds_b))  # a batch may be empty
    logs = []
    for speeds in (speeds_a, speeds_b):
        values = [samples if by_samples and samples is not None else steps for steps, samples in speeds]
        if len(values) < 2:
            return None
        logs.append(mean_estimate([math.log(value) for value in values]))
    difference = logs[1].value - logs[0].value
    half = math.hypot(*((estimate.high - estimate.low) / 2 for estimate in logs))
    low, high = math.exp(difference - half), math.exp(difference + half)
    return Change(math.exp(difference), low, high, shown=low > 1 or high < 1)


def _speeds(run: Run) -> list[tuple[float, float | None]]:
    """Steps and samples per second of up to ten equal stretches of the measured part of the first rank."""
    profiled = run.kind == "import"  # a window of a few steps, chosen to be typical
    timelines = timelines_of(run, 0 if profiled else WARMUP_STEPS)
    if not timelines:
        return []
    batches = timelines[0].measured_batches
    # The real steps of `unstarve ideal` are not consecutive: replayed ones lie between them.
    apart = [step.seconds for step in timelines[0].steps] if run.kind == "ideal" else None
    size = max((len(batches) - 1) // _BLOCKS, 1 if profiled else _FEWEST_BLOCK_STEPS)
    speeds = []
    for at in range(0, min(len(batches), len(apart or batches)) - size, size):
        elapsed_s = (batches[at + size].got_ns - batches[at].got_ns) / 1e9
        seconds = elapsed_s if apart is None else sum(apart[at : at + size])
        if seconds <= 0:
            continue
        sizes = [batch.size for batch in batches[at : at + size]]
        samples = None if any(n is None for n in sizes) else sum(n or 0 for n in sizes) / seconds
        speeds.append((size / seconds, samples))
    return speeds


def _headline(change: Change | None) -> str:
    if change is None:
        return "One of the runs is too short to compare."
    ratio = times_interval(change.ratio, change.low, change.high, 2)
    if not change.shown:
        return f"No difference shown: B runs at {ratio} the speed of A."
    if change.ratio >= 1:
        return f"B is {ratio} as fast as A."
    return f"B is slower: {ratio} the speed of A."


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
