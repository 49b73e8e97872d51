"""Seconds → state, cause, evidence: what a person is told first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from unstarve.analyze.evidence import evidence
from unstarve.analyze.timeline import Timeline
from unstarve.intervals import WORTH_IT
from unstarve.model import Cause, Demand, GpuSummary, Headroom, Run, State, Verdict

_SECOND = 0.25
"""Share of the waiting from which on a second cause is named."""
_WHY = {
    Cause.DISK: "for the disk",
    Cause.REMOTE: "for something that is neither CPU nor local disk",
    Cause.CPU: "because samples cost CPU time",
    Cause.COLLATE: "because batches are slow to collate",
    Cause.HANDOFF: "to get finished batches from the workers",
    Cause.PIN: "for memory to be pinned",
    Cause.COPY: "for copies to the device",
    Cause.SAMPLER: "for the sampler",
    Cause.STARTUP: "for loaders to start",
    Cause.ORDER: "because finished batches are held back for a late one",
    Cause.CONTENTION: "because there are too few cores for the work",
}


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Where one state ends and the next begins."""

    starved: float = 0.20
    """Stall share from which on training is starved."""
    tight: float = 0.05
    fewest_steps: int = 20
    """Measured steps under which nothing is concluded."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What analysis knows about one run, before it is put into words."""

    timelines: list[Timeline]
    stall_share: float | None
    headroom: Headroom | None
    waits: Mapping[Cause, float]
    """Seconds of waiting per cause, of the measured part."""
    steps: Mapping[Cause, float]
    """The same of the steps themselves."""
    demand: Demand | None
    gpu: GpuSummary | None = None


def conclude(run: Run, findings: Findings, thresholds: Thresholds) -> Verdict:
    """The verdict on a run."""
    missing = _what_is_missing(run, findings.timelines, thresholds)
    if missing is not None or findings.stall_share is None:
        text = missing or "The recorded time is too short to judge."
        return Verdict(
            State.INCONCLUSIVE, Cause.UNKNOWN, text, evidence(findings.timelines, Cause.UNKNOWN, None)
        )
    state = _state(findings.stall_share, thresholds)
    cause, second = _fed_cause(findings) if state is State.FED else _wait_causes(findings)
    return Verdict(
        state,
        cause,
        _headline(state, cause, findings),
        evidence(findings.timelines, cause, findings.demand, findings.gpu, findings.waits),
        second,
    )


def _fed_cause(findings: Findings) -> tuple[Cause, Cause | None]:
    host_s, compute_s = (findings.steps.get(cause, 0.0) for cause in (Cause.HOST, Cause.COMPUTE))
    return (Cause.HOST if host_s > compute_s else Cause.COMPUTE), None


def _wait_causes(findings: Findings) -> tuple[Cause, Cause | None]:
    """The largest cause of waiting, and the next where it matters."""
    ordered = sorted(findings.waits.items(), key=lambda item: -item[1])
    if not ordered:
        return Cause.UNKNOWN, None
    total_s = sum(findings.waits.values())
    second = ordered[1][0] if len(ordered) > 1 and ordered[1][1] >= _SECOND * total_s else None
    return ordered[0][0], second


def _state(stall_share: float, thresholds: Thresholds) -> State:
    if stall_share >= thresholds.starved:
        return State.STARVED
    return State.TIGHT if stall_share >= thresholds.tight else State.FED


def _what_is_missing(run: Run, timelines: list[Timeline], thresholds: Thresholds) -> str | None:
    if not timelines:
        if any(process.batches for process in run.processes):
            return (
                "Batches were recorded only inside DataLoader workers; the training loop itself was not seen."
            )
        lost = [*run.lost, *(message for process in run.processes for message in process.lost)]
        if lost:
            return f"Nothing could be recorded: {lost[0]}."
        return (
            "No DataLoader was iterated. If the loader is something else, "
            "wrap it: for batch in unstarve.watch(loader)."
        )
    if all(timeline.batches[0].thread != 0 for timeline in timelines):
        return (
            "The loader is consumed in a background thread, so its waits are not training's. "
            "Wrap what the training loop iterates with unstarve.watch()."
        )
    steps = max(len(timeline.measured_batches) for timeline in timelines)
    if steps < thresholds.fewest_steps and run.kind == "ideal":
        return (
            f"Only {steps} real steps could be measured; {thresholds.fewest_steps} are needed. "
            "Let the command run longer, or make the blocks shorter with --block-steps."
        )
    if steps < thresholds.fewest_steps:
        count = f"{steps} steps were" if steps != 1 else "1 step was"
        return (
            f"Only {count} recorded after warm-up; {thresholds.fewest_steps} are needed. Let it run longer."
        )
    return None


def _headline(state: State, cause: Cause, findings: Findings) -> str:
    share, headroom = findings.stall_share or 0.0, findings.headroom
    percent = f"{share:.0%}" if share >= 0.095 else f"{share:.1%}"
    if state is State.FED:
        sentence = f"Training is fed: it waits for data {percent} of the time."
        if cause is Cause.HOST:
            sentence += " The loop's own Python takes longer than computing."
    else:
        why = _WHY.get(cause)
        sentence = f"Training waits for data {percent} of the time" + (f", mostly {why}." if why else ".")
    if headroom is not None and headroom.method == "replay":
        return f"{sentence} {_measured_gain(headroom, state)}"
    if headroom is None or state is State.FED:
        return sentence
    return f"{sentence} With data for free it would run {_times(headroom.speedup)} as fast."


def _times(speedup: float) -> str:
    """``about 2.4×``; past a hundredfold the digits mean nothing."""
    if speedup > 100:
        return "more than 100×"
    return f"about {speedup:.0f}×" if speedup >= 10 else f"about {speedup:.2g}×"


def _measured_gain(headroom: Headroom, state: State) -> str:
    # Steps that vary for reasons of their own show no gain; if they hardly wait either, there is none.
    varies = headroom.low <= 1
    if headroom.high < WORTH_IT or headroom.speedup < WORTH_IT - 0.02 or (varies and state is State.FED):
        return "There is nothing to gain from faster loading (measured)."
    if not varies:
        return f"With data for free it runs {headroom.speedup:.2f}× as fast (measured)."
    return "The steps vary too much to tell what faster loading would gain; measure longer with --pairs."
