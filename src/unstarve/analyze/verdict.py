"""Findings → verdict: state, cause, headline, and the evidence in sentences that a person can check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from unstarve.analyze.command_end import after, ended_early, failed
from unstarve.analyze.device_copies import copies_headline, copy_evidence
from unstarve.analyze.mean_step import Lost, lost_by, mean_step
from unstarve.analyze.no_batches import loop_notes, why_no_batches
from unstarve.analyze.stats import number_of
from unstarve.analyze.timeline import Timeline
from unstarve.intervals import WORTH_IT
from unstarve.model import Cause, CopySummary, Demand, Doing, GpuSummary, Headroom, Run, State, Verdict
from unstarve.words import duration, percent, size, times, workers

_SECOND = 0.25
"""Smallest share of the waiting for which a second cause is named."""
WHY = {
    Cause.DISK: "for the disk",
    Cause.REMOTE: "for something other than CPU or local disk",
    Cause.CPU: "because samples cost CPU time",
    Cause.COLLATE: "because collating is slow",
    Cause.HANDOFF: "for the hand-off of finished batches",
    Cause.PIN: "for memory pinning",
    Cause.COPY: "for copies to the device",
    Cause.SAMPLER: "for the sampler",
    Cause.STARTUP: "for loaders to start",
    Cause.ORDER: "because late batches hold back finished ones",
    Cause.CONTENTION: "because there are too few free cores",
}
_CROWDED = 0.2
"""Smallest share of the steps of a fed training spent waiting for a core that counts as crowded: as much as a
starved training waits for data."""
_WORTH_TELLING = 0.05
_WORTH_TELLING_APART = 0.2


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Where one verdict state ends and the next begins."""

    starved: float = 0.20
    """Smallest stall share of a starved training."""
    tight: float = 0.05
    """Smallest stall share of a tight training; below, it is fed."""
    fewest_steps: int = 20
    """With fewer measured steps the verdict is inconclusive."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The numbers that a verdict is based on."""

    timelines: list[Timeline]
    stall_share: float | None
    headroom: Headroom | None
    waits: Mapping[Cause, float]
    """Seconds of waiting per cause, in the measured part."""
    steps: Mapping[Cause, float]
    """Seconds of the steps themselves, per cause."""
    demand: Demand | None
    gpu: GpuSummary | None = None
    wait_share: float | None = None
    """Share of the time that the host waited; on a CPU the same as `stall_share`."""
    beyond_waits: str | None = None
    """Why the headroom is larger than the waits explain; None when it is not."""
    measured_steps: int = 0
    """Of the job; each of the `timelines` of several ranks has only those in which its rank came last."""
    copies: CopySummary | None = None

    @property
    def lost_share(self) -> float:
        """Share of the time that the device lost to loading and to copies."""
        return min((self.stall_share or 0.0) + self.copied_share, 1.0)

    @property
    def copied_share(self) -> float:
        return 0.0 if self.copies is None else self.copies.share


def conclude(run: Run, findings: Findings, thresholds: Thresholds) -> Verdict:
    """The verdict on a run."""
    missing = _what_is_missing(run, findings.timelines, findings.measured_steps, thresholds)
    if missing is not None or findings.stall_share is None:
        text = missing or "The recorded time is too short to judge."
        told = evidence(findings.timelines, Cause.UNKNOWN, None)
        return Verdict(State.INCONCLUSIVE, Cause.UNKNOWN, text, told + _notes(run, findings, text))
    state = _state(findings.lost_share, thresholds)
    cause, second = _fed_cause(findings) if state is State.FED else _wait_causes(findings)
    if state is not State.FED and findings.copied_share > findings.stall_share:
        cause, second = Cause.COPY, None
    lines = evidence(findings.timelines, cause, findings.demand, findings.gpu, findings.waits)
    lines += tuple(copy_evidence(findings.copies, findings.gpu))
    if findings.beyond_waits is not None:
        lines = (*lines, findings.beyond_waits)
    return Verdict(state, cause, _headline(state, cause, findings), lines + _notes(run, findings), second)


def _notes(run: Run, findings: Findings, headline: str = "") -> tuple[str, ...]:
    """How the command ended and what it did instead of iterating loaders, where the headline does not say."""
    if not findings.timelines:
        return loop_notes(run)
    ended = ended_early(run, after(_steps_of(findings.timelines))) if failed(run) else None
    return () if ended is None or headline.startswith(ended) else (ended[:1].lower() + ended[1:],)


def _steps_of(timelines: Sequence[Timeline]) -> int:
    return max(number_of(timeline.batches) for timeline in timelines)


def _fed_cause(findings: Findings) -> tuple[Cause, Cause | None]:
    host_s, compute_s = (findings.steps.get(cause, 0.0) for cause in (Cause.HOST, Cause.COMPUTE))
    queued_s = _step_queued_s(findings)
    if _crowded_by_workers(findings) and queued_s > _CROWDED * (compute_s + host_s + queued_s):
        return Cause.CONTENTION, None
    return (Cause.HOST if host_s > compute_s else Cause.COMPUTE), None


def _crowded_by_workers(findings: Findings) -> bool:
    system = findings.timelines[0].process.system if findings.timelines else {}
    cores = min((system[key] for key in ("cores", "quota_cores") if system.get(key)), default=None)
    return cores is not None and findings.demand is not None and findings.demand.workers > cores


def _step_queued_s(findings: Findings) -> float:
    return findings.steps.get(Cause.CONTENTION, 0.0)


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


def _what_is_missing(run: Run, timelines: list[Timeline], steps: int, thresholds: Thresholds) -> str | None:
    if not timelines:
        if any(process.batches for process in run.processes):
            return "Batches were recorded only inside DataLoader workers; the training loop was not recorded."
        return why_no_batches(run)
    if all(timeline.batches[0].thread != 0 for timeline in timelines):
        return (
            "The loader is consumed in a background thread, so its waits do not show whether training waits. "
            "Wrap what the training loop iterates in unstarve.watch()."
        )
    if steps < thresholds.fewest_steps and run.kind == "ideal":
        return (
            f"Only {steps} real steps could be measured; {thresholds.fewest_steps} are needed. "
            "Let the command run longer, or make the blocks shorter with --block-steps."
        )
    if steps < thresholds.fewest_steps and failed(run):
        ended = ended_early(run, after(_steps_of(timelines)))
        return f"{ended}. A verdict needs {thresholds.fewest_steps} steps after warm-up."
    if steps < thresholds.fewest_steps:
        count = f"{steps} steps were" if steps != 1 else "1 step was"
        return (
            f"Only {count} recorded after warm-up; {thresholds.fewest_steps} are needed. Let it run longer."
        )
    return None


def _headline(state: State, cause: Cause, findings: Findings) -> str:
    if cause is Cause.COPY and findings.copies is not None:
        return copies_headline(findings.copies)
    headroom, waits = findings.headroom, _waits(findings, fed=state is State.FED)
    if state is State.FED:
        sentence = f"Training is fed: {waits}."
        if cause is Cause.HOST:
            sentence += " The training loop's own Python takes longer than the computation."
        if cause is Cause.CONTENTION:
            queued = _step_queued_s(findings) / sum(timeline.measured_s for timeline in findings.timelines)
            sentence += f" But its steps wait for a free core {percent(queued)} of the time."
    else:
        why = WHY.get(cause)
        sentence = waits[:1].upper() + waits[1:] + (f", mostly {why}." if why else ".")
    if headroom is not None and headroom.method == "replay":
        return f"{sentence} {_measured_gain(headroom, state)}"
    if headroom is None or state is State.FED:
        return sentence
    return f"{sentence} If loading were free, training would run {_times(headroom.speedup)} as fast."


def _waits(findings: Findings, *, fed: bool) -> str:
    """The share of time lost to data, and whose: the GPU's by its own clock, or the host's."""
    share = percent(findings.stall_share or 0.0)
    whose = lost_by(findings.timelines, findings.gpu)
    if whose is Lost.WAIT:
        return f"{'it' if fed else 'training'} waits for data {share} of the time"
    if whose is Lost.HOST:
        return f"the host waited for data {share} of the time"
    host = "" if findings.wait_share is None else f" (the host waited {percent(findings.wait_share)})"
    return f"the GPU starved {share} of the time{host}"


def _times(speedup: float) -> str:
    """``about 2.4×``."""
    return times(speedup) if speedup > 100 else f"about {times(speedup)}"


def _measured_gain(headroom: Headroom, state: State) -> str:
    # Steps that vary by themselves show no gain; if they hardly wait either, there is none.
    varies = headroom.low <= 1
    if headroom.high < WORTH_IT or headroom.speedup < WORTH_IT - 0.02 or (varies and state is State.FED):
        return "There is nothing to gain from faster loading (measured)."
    if not varies:
        return f"If loading were free, training would run {times(headroom.speedup, 2)} as fast (measured)."
    return "Steps vary too much to tell what faster loading would gain; measure longer with --pairs."


def evidence(
    timelines: Sequence[Timeline],
    cause: Cause,
    demand: Demand | None,
    gpu: GpuSummary | None = None,
    waits: Mapping[Cause, float] | None = None,
) -> tuple[str, ...]:
    """The measured times and what points to the cause; `waits` are seconds of waiting per cause."""
    lines = [*_step_times(timelines, gpu), *_starts(timelines, demand)]
    if cause is Cause.CONTENTION and waits:
        lines.insert(min(1, len(lines)), _missed_cores(waits))
        if demand is not None and _share(demand.queued_s, demand) < _WORTH_TELLING_APART:
            demand = None  # cores were missing elsewhere, for example while sending
    if demand is not None and cause in _BY_CAUSE:
        lines.insert(min(1, len(lines)), _BY_CAUSE[cause](demand))
    if lost_by(timelines, gpu) is not Lost.WAIT:
        lines += _device(gpu)
    return tuple(lines)


def _device(gpu: GpuSummary | None) -> list[str]:
    if gpu is None or gpu.stall_share is None:
        return ["waits are measured on the host: the accelerator may still have had work queued"]
    lines = ["the GPU's share is by its own clock; in the rest of the host's waits it still had work"]
    if gpu.host_late_share is not None and gpu.host_late_share >= _WORTH_TELLING:
        lines.append(
            f"the GPU was idle another {percent(gpu.host_late_share)} of the time: the host gave it "
            f"work too late"
        )
    return lines


def walk(findings: Findings, thresholds: Thresholds) -> tuple[str, ...]:
    """The questions people ask one after another, with this run's answers."""
    share, demand = findings.stall_share, findings.demand
    if share is None:
        return ()
    waits = "yes" if share >= thresholds.tight else "no"
    who = {Lost.WAIT: "", Lost.HOST: "the host waited ", Lost.GPU: "the GPU starved "}
    whose = lost_by(findings.timelines, findings.gpu)
    lines = [f"Does training wait?  {waits}: {who[whose]}{percent(share)} of the time"]
    if findings.copied_share >= thresholds.tight:
        lines.append(
            f"Are copies slow?     yes: the GPU waits for them {percent(findings.copied_share)} of the time"
        )
    step = mean_step(findings.timelines, findings.gpu)
    if demand is None or step is None:
        return tuple(lines)
    batch_s = demand.fetch_s + demand.collate_s + demand.handoff_s + demand.pin_s + demand.sampler_s
    # The training process draws the indices itself: workers cannot share that.
    pace_s = (batch_s - demand.sampler_s) / max(demand.workers, 1) + demand.sampler_s
    pace = f"with {workers(demand.workers)} one every {duration(pace_s)}"
    makers = pace if demand.workers else "without workers"
    lines.append(
        f"Is loading slow?     a batch takes {duration(batch_s)} to make, {makers}; the step itself takes "
        f"{duration(step.own_s)}"
    )
    stages = {
        "on CPU": demand.cpu_s,
        "disk": demand.disk_s,
        "blocked elsewhere": demand.remote_s,
        "waiting for a core": demand.queued_s,
        "collate": demand.collate_s,
        "hand-off": demand.handoff_s,
        "pinning": demand.pin_s,
        "sampler": demand.sampler_s,
    }
    large = sorted(((s, name) for name, s in stages.items() if s > _WORTH_TELLING * batch_s), reverse=True)
    lines.append("Which stage?         " + ", ".join(f"{name} {duration(s)}" for s, name in large))
    return tuple(lines)


def _step_times(timelines: Sequence[Timeline], gpu: GpuSummary | None) -> list[str]:
    step = mean_step(timelines, gpu)
    if step is None:
        return []
    lost = {
        Lost.WAIT: "of waiting for the next batch",
        Lost.HOST: "in which the host waited for the next batch",
        Lost.GPU: "in which the GPU starved",
    }[lost_by(timelines, gpu)]
    return [
        f"{step.steps} measured steps took {duration(step.own_s)} on average, "
        f"plus {duration(step.lost_s)} {lost}"
    ]


def _starts(timelines: Sequence[Timeline], demand: Demand | None) -> list[str]:
    ranks = max(len(timelines), 1)
    start_s = sum(s.seconds for t in timelines for s in t.own if s.doing is Doing.START) / ranks
    own_s = sum(span.seconds for timeline in timelines for span in timeline.own) / ranks
    if not own_s or start_s / own_s < _WORTH_TELLING:
        return []
    loop = "training" if timelines[0].own[0].validation is None else "validation"
    took = f"{duration(start_s)} ({percent(start_s / own_s)} of {loop})"
    if (
        demand is not None and not demand.workers
    ):  # nothing was started: the batches were made like all others
        return [f"waiting for the first batch of each epoch took another {took}"]
    return [f"starting loaders and waiting for first batches took {took}"]


def _fetching(part_s: float, demand: Demand) -> str:
    """``fetching in 4 workers is 64%``, to be completed by the caller."""
    where = f" in {workers(demand.workers)}" if demand.workers else ""
    return f"fetching{where} is {percent(_share(part_s, demand))}"


def _share(part_s: float, demand: Demand) -> float:
    return part_s / demand.fetch_s if demand.fetch_s else 0.0


def _cpu(demand: Demand) -> str:
    each = f"{duration(demand.cpu_s / demand.samples)} per sample" if demand.samples else ""
    return f"{_fetching(demand.cpu_s, demand)} CPU time: {each or f'{duration(demand.cpu_s)} per batch'}"


def _remote(demand: Demand) -> str:
    said, read = f"{_fetching(demand.remote_s, demand)} off-CPU waiting", demand.storage_bytes
    if read is None:
        return said
    return f"{said}; only {size(read)} per batch came from storage" if read else f"{said}, not for storage"


def _disk(demand: Demand) -> str:
    said, read = f"{_fetching(demand.disk_s, demand)} waiting for storage", demand.storage_bytes
    return said if read is None else f"{said}: {size(read)} per batch were not in memory"


def _contention(demand: Demand) -> str:
    return f"{_fetching(demand.queued_s, demand)} waiting for a free core"


def _missed_cores(waits: Mapping[Cause, float]) -> str:
    """Not only fetching needs a core: collating, sending and receiving do, too."""
    share = waits.get(Cause.CONTENTION, 0.0) / sum(waits.values())
    return f"during {percent(share)} of the waiting, the next task was runnable but no core was free"


def _collate(demand: Demand) -> str:
    collate, fetch = duration(demand.collate_s), duration(demand.fetch_s)
    return f"collating a batch takes {collate} of CPU time, fetching its samples {fetch}"


def _handoff(demand: Demand) -> str:
    return (
        f"the hand-off of a batch takes {duration(demand.handoff_s)}, "
        f"making it {duration(demand.fetch_s + demand.collate_s)}"
    )


def _sampler(demand: Demand) -> str:
    return f"the sampler takes {duration(demand.sampler_s)} per batch, in the training process"


def _order(demand: Demand) -> str:
    return (
        f"the slowest batches take {times(demand.tail)} as long as a typical one; "
        "finished batches waited for them while workers were idle"
    )


def _pin(demand: Demand) -> str:
    return f"pinning a batch takes {duration(demand.pin_s)}"


_BY_CAUSE: dict[Cause, Callable[[Demand], str]] = {
    Cause.CPU: _cpu,
    Cause.REMOTE: _remote,
    Cause.DISK: _disk,
    Cause.CONTENTION: _contention,
    Cause.COLLATE: _collate,
    Cause.HANDOFF: _handoff,
    Cause.SAMPLER: _sampler,
    Cause.ORDER: _order,
    Cause.PIN: _pin,
}
