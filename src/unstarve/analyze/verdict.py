"""Seconds → state, cause, evidence: what a person is told first."""

from __future__ import annotations

from dataclasses import dataclass

from unstarve.analyze.timeline import Doing, Timeline
from unstarve.model import Cause, Headroom, Run, State, Verdict

_NO_GAIN = 1.05
"""A speed-up below this is not worth anybody's time."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Where one state ends and the next begins."""

    starved: float = 0.20
    """Stall share from which on training is starved."""
    tight: float = 0.05
    fewest_steps: int = 20
    """Measured steps under which nothing is concluded."""


def conclude(
    run: Run,
    timelines: list[Timeline],
    stall_share: float | None,
    headroom: Headroom | None,
    thresholds: Thresholds,
) -> Verdict:
    """The verdict on a run."""
    missing = _what_is_missing(run, timelines, thresholds)
    if missing is not None or stall_share is None:
        text = missing or "The recorded time is too short to judge."
        return Verdict(State.INCONCLUSIVE, Cause.UNKNOWN, text, _evidence(timelines))
    state = _state(stall_share, thresholds)
    cause = Cause.COMPUTE if state is State.FED else Cause.UNKNOWN
    return Verdict(state, cause, _headline(state, stall_share, headroom), _evidence(timelines))


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


def _headline(state: State, stall_share: float, headroom: Headroom | None) -> str:
    percent = f"{stall_share:.0%}" if stall_share >= 0.095 else f"{stall_share:.1%}"
    if state is State.FED:
        sentence = f"Training is fed: it waits for data {percent} of the time."
    elif state is State.TIGHT:
        sentence = f"Training waits for data {percent} of the time: close to what the loader can give."
    else:
        sentence = f"Training waits for data {percent} of the time."
    if headroom is not None and headroom.method == "replay":
        return f"{sentence} {_measured_gain(headroom)}"
    if headroom is None or state is State.FED:
        return sentence
    return f"{sentence} With data for free it would run about {headroom.speedup:.2g}× as fast."


def _measured_gain(headroom: Headroom) -> str:
    if headroom.high < _NO_GAIN or headroom.speedup < _NO_GAIN - 0.02:
        return "There is nothing to gain from faster loading (measured)."
    if headroom.low > 1:
        return f"With data for free it runs {headroom.speedup:.2f}× as fast (measured)."
    return "The steps vary too much to tell what faster loading would gain; measure longer with --pairs."


def _evidence(timelines: list[Timeline]) -> tuple[str, ...]:
    """Numbers that a person can check."""
    lines = []
    steps = [step for timeline in timelines for step in timeline.steps]
    if steps:
        mean_step = sum(step.seconds for step in steps) / len(steps)
        mean_wait = sum(step.wait_s for step in steps) / len(steps)
        lines.append(
            f"{len(steps)} measured steps took {mean_step * 1e3:.1f} ms on average, "
            f"{mean_wait * 1e3:.1f} ms of it waiting for the next batch"
        )
    starts = [span for timeline in timelines for span in timeline.spans if span.doing is Doing.START]
    start_s = sum(span.seconds for span in starts) / max(len(timelines), 1)
    wall_s = sum(timeline.wall_s for timeline in timelines) / max(len(timelines), 1)
    if wall_s and start_s / wall_s >= 0.05:
        lines.append(
            f"starting loaders and waiting for first batches took {start_s:.1f} s "
            f"({start_s / wall_s:.0%} of all)"
        )
    if any(timeline.process.device != "cpu" for timeline in timelines):
        lines.append("waits are the host's: the accelerator may still have had queued work during them")
    return tuple(lines)
