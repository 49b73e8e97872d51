"""Run → `Diagnosis`, from the recording alone; `unstarve.api.diagnose` adds forecasts and advice."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from unstarve.analyze.batch_costs import demand_of, slow_samples
from unstarve.analyze.batch_production import EpochProduction, RecordedTraining, recorded_trainings
from unstarve.analyze.blame import total
from unstarve.analyze.budget import (
    as_shares,
    beginning_causes,
    causes_of,
    device_steps,
    seen_by_device,
    split_steps,
    step_queued_s,
    wait_causes,
)
from unstarve.analyze.chart_views import typical_lanes
from unstarve.analyze.critical_rank import critical_timelines
from unstarve.analyze.device_copies import bill_copies, summarize_copies, without_copies
from unstarve.analyze.device_summary import summarize_gpu
from unstarve.analyze.file_reading import summarize_reads
from unstarve.analyze.function_costs import function_costs, transform_costs
from unstarve.analyze.headroom import estimated_headroom, measured_headroom
from unstarve.analyze.headroom_reasons import beyond_waits
from unstarve.analyze.imported_run import analyze_import
from unstarve.analyze.loader_summary import summarize_loaders
from unstarve.analyze.memory_summary import memory_of
from unstarve.analyze.no_batches import loop_functions, unseen_batches
from unstarve.analyze.outside import mean_outside, outside_of
from unstarve.analyze.own_overhead import overhead_of
from unstarve.analyze.processor_use import summarize_processor
from unstarve.analyze.rank_rounds import folded_rounds, rounds_of
from unstarve.analyze.ranks import crowded_node, joint_rounds, rank_sentence, summarize_ranks
from unstarve.analyze.stats import number_of, spread_ms, wait_spread_ms
from unstarve.analyze.timeline import WARMUP_STEPS, Timeline, TimeSpan, training_processes
from unstarve.analyze.verdict import Findings, Thresholds, conclude, walk
from unstarve.model import (
    Cause,
    Demand,
    Diagnosis,
    Doing,
    Headroom,
    Lane,
    MemorySummary,
    Process,
    Run,
    Spread,
    Throughput,
)
from unstarve.model.recorded import STOPPED_EARLY
from unstarve.words import amount, listed


def analyze_run(
    run: Run,
    thresholds: Thresholds | None = None,
    warmup_steps: int = WARMUP_STEPS,
    trainings: Sequence[RecordedTraining] | None = None,
) -> Diagnosis:
    """The diagnosis of a run, without forecasts and advice.

    `trainings` are `recorded_trainings(run, warmup_steps)`, for a caller that needs them too.
    """
    if run.kind == "import" and run.profile is not None and run.processes:
        return analyze_import(run, run.processes[0], run.profile, thresholds or Thresholds())
    trainers = training_processes(run)
    trainings = recorded_trainings(run, warmup_steps) if trainings is None else trainings
    timelines = [t.timeline for t in trainings]
    # `unstarve ideal` mixes real and replayed steps: only the measured real ones describe the training.
    outside = () if run.kind == "ideal" else mean_outside([outside_of(run, t) for t in timelines])
    comparable = run.kind != "ideal" and len(trainers) == len(timelines)
    joint = joint_rounds([*map(rounds_of, timelines)]) if comparable else None
    folded = [rounds for process in run.processes if (rounds := folded_rounds(process)) is not None]
    # Steps of merged runs may be folded; the few ranks that are in full stand for the others then.
    whole = (joint_rounds(folded) or joint) if folded else joint
    ranks = None if whole is None else summarize_ranks(whole)
    # Ranks wait for each other: the job's numbers are those of the rank that came last, step by step.
    decisive = timelines if joint is None else critical_timelines(timelines, joint)
    all_made = {id(t.timeline.process): _own_productions(t) for t in trainings}
    made = [all_made[id(t.process)] for t in decisive]
    measured_s = sum(timeline.measured_s for timeline in decisive)
    wait_share = sum(timeline.wait_s for timeline in decisive) / measured_s if measured_s else None
    copies = summarize_copies(decisive)
    gpu = without_copies(summarize_gpu(decisive), copies)
    # On a CPU the wait is the stall; on an accelerator only its own events tell.
    on_cpu = all(t.process.device == "cpu" for t in timelines)
    stall_share = wait_share if on_cpu else None if gpu is None else gpu.stall_share
    lost_share = wait_share if stall_share is None else stall_share
    if ranks is not None and on_cpu and lost_share is not None:
        # Without its waits, another rank may come last.
        lost_share = stall_share = min(lost_share, 1 - ranks.free_ms / ranks.step_ms)
    headroom = _headroom(run, timelines if run.kind == "ideal" else decisive, lost_share)
    findings = Findings(
        decisive,
        lost_share,
        headroom,
        total(_waits(t.measured, m) for t, m in zip(decisive, made, strict=True)),
        total(_steps(t) for t in decisive) if gpu is None else device_steps(gpu, measured_s),
        _demand(decisive, made),
        gpu,
        wait_share,
        None if headroom is None else beyond_waits(decisive, headroom, lost_share, gpu),
        max((number_of(t.measured_batches) for t in timelines), default=0),
        copies,
    )
    spent = total(causes_of(t.measured, t.process, m) for t, m in zip(decisive, made, strict=True))
    if gpu is not None:
        spent = seen_by_device(spent, findings.waits, wait_share, gpu)
    spent = bill_copies(spent, copies)
    verdict = conclude(run, findings, thresholds or Thresholds())
    told = None if ranks is None else rank_sentence(ranks)
    if told is not None:
        verdict = dataclasses.replace(verdict, headline=f"{verdict.headline} {told}")
    crowded = crowded_node(trainers)
    if crowded is not None:
        verdict = dataclasses.replace(verdict, evidence=(*verdict.evidence, crowded))
    first = trainers[0] if trainers else None
    makers = _makers(run.processes, decisive)
    mean_s = _mean([t.measured_s for t in timelines])
    return Diagnosis(
        command=run.command,
        kind=run.kind,
        path=run.path,
        started_at=run.started_at,
        wall_s=mean_s + sum(part.seconds for part in outside),
        steps=max((number_of(timeline.batches) for timeline in timelines), default=0),
        warmup_steps=min(warmup_steps, max((len(t.batches) for t in timelines), default=0)),
        ranks=max(len(trainers), 0 if ranks is None else len(ranks.by_rank)),
        device=first.device if first else "cpu",
        versions=first.versions if first else {},
        cut_short=_cut_short(run, trainers),
        live=run.live,
        exit_code=run.exit_code,
        verdict=verdict,
        wait_share=wait_share,
        stall_share=stall_share,
        throughput=_throughput(timelines),
        step_ms=_step_ms(decisive),
        wait_ms=wait_spread_ms(b for t in decisive for b in t.measured_batches),
        budget=as_shares(spent, mean_s),
        headroom=findings.headroom,
        overhead=overhead_of(timelines, run.processes),
        loaders=summarize_loaders(trainers, run.processes),
        lost=_lost(run, trainers),
        outside=outside,
        gpu=gpu,
        copies=copies,
        waits=findings.waits,
        demand=findings.demand,
        functions=function_costs(makers, findings.demand) if timelines else loop_functions(run),
        unseen_batches=None if timelines else unseen_batches(run),
        failure=run.failure,
        transforms=transform_costs(makers),
        system=_system(run, trainers),
        typical=_typical(trainings),
        profile=run.profile,
        io=summarize_reads(run, trainers),
        perf=summarize_processor(run),
        rank_times=ranks,
        walk=walk(findings, thresholds or Thresholds()),
        memory=_memory(timelines, run),
        slow_samples=slow_samples({(i, *key): p for i, m in enumerate(made) for key, p in m.items()}),
    )


def _demand(
    timelines: Sequence[Timeline], made: Sequence[Mapping[tuple[int, int], EpochProduction]]
) -> Demand | None:
    """What a batch costs, on the rank that the others wait for most."""
    found = [
        (timeline.measured_s, demand)
        for timeline, m in zip(timelines, made, strict=True)
        if (demand := demand_of(timeline, m)) is not None
    ]
    return max(found, key=lambda one: one[0])[1] if found else None


def _own_productions(training: RecordedTraining) -> dict[tuple[int, int], EpochProduction]:
    """How the batches of this loop were made."""
    others = training.timeline.others
    return {key: made for key, made in training.productions.items() if key not in others}


def _waits(spans: Sequence[TimeSpan], made: Mapping[tuple[int, int], EpochProduction]) -> dict[Cause, float]:
    """Seconds of waiting per cause, starts of epochs included."""
    parts = [wait_causes(span, span.batch, made) for span in spans if span.batch is not None]
    starts = [beginning_causes(s) for s in spans if s.batch is None and s.doing is Doing.START]
    return total([*parts, *starts])


def _steps(timeline: Timeline) -> dict[Cause, float]:
    step_s = sum(span.seconds for span in timeline.measured if span.doing is Doing.STEP)
    return split_steps(step_s, step_queued_s(timeline.measured), timeline.process)


def _step_ms(timelines: Sequence[Timeline]) -> Spread | None:
    steps = [step for timeline in timelines for step in timeline.steps]
    return spread_ms([s.seconds for s in steps if not s.sketch], [s.sketch for s in steps])


def _typical(trainings: Sequence[RecordedTraining]) -> tuple[Lane, ...]:
    if not trainings:
        return ()
    waiting = max(trainings, key=lambda training: training.timeline.wait_s)
    return typical_lanes(waiting.timeline, waiting.productions)


def _memory(timelines: list[Timeline], run: Run) -> MemorySummary | None:
    shown = max(timelines, key=lambda t: t.wait_s, default=None)
    return None if shown is None else memory_of(shown.process, run.processes, shown.spans[0].begin_ns)


def _system(run: Run, trainers: list[Process]) -> dict[str, Any]:
    """The training process's view of its machine; file systems are counted over its workers, too."""
    if not trainers:
        return {}
    filesystems: Counter[str] = Counter()
    for process in run.processes:
        filesystems.update(process.system.get("filesystems") or {})
    return {**trainers[0].system, "filesystems": dict(filesystems)}


def _makers(processes: Sequence[Process], timelines: Sequence[Timeline]) -> list[Process]:
    """The processes without the workers of other loops."""
    own, others = set[tuple[str, int]](), set[tuple[str, int]]()
    for timeline in timelines:
        for crew in timeline.process.crews:
            theirs = (crew.loader, crew.epoch) in timeline.others
            (others if theirs else own).update((timeline.process.host, pid) for pid in crew.pids)
    return [p for p in processes if not p.worker or (p.host, p.pid) not in others - own]


def _headroom(run: Run, timelines: list[Timeline], lost_share: float | None) -> Headroom | None:
    if run.kind == "ideal":
        measured = [h for t in timelines if (h := measured_headroom(t)) is not None]
        # Ranks wait for each other: the one with the most to gain limits the whole job.
        return max(measured, key=lambda h: h.speedup) if measured else None
    return estimated_headroom(timelines, lost_share)


def _throughput(timelines: list[Timeline]) -> Throughput:
    """Steps of one rank, samples of all ranks together."""
    timed = [t for t in timelines if t.measured_s > 0 and t.measured_batches]
    if not timed:
        return Throughput(None, None)
    steps = _mean([number_of(t.measured_batches) / t.measured_s for t in timed])
    sizes = [[batch.size for batch in t.measured_batches] for t in timed]
    if any(size is None for rank in sizes for size in rank):
        return Throughput(steps, None)
    samples = sum(sum(s or 0 for s in rank) / t.measured_s for rank, t in zip(sizes, timed, strict=True))
    return Throughput(steps, samples)


def _cut_short(run: Run, trainers: list[Process]) -> bool:
    return run.exit_code is None or any(process.end_ns is None for process in trainers)


def _lost(run: Run, trainers: list[Process]) -> tuple[str, ...]:
    lost = list(run.lost)
    for process in run.processes:
        lost.extend(f"process {process.pid}: {message}" for message in process.lost)
    if run.reads is not None and run.reads.why_not is not None:
        lost.append(f"--io: {run.reads.why_not}")
    if run.perf_why_not is not None:
        lost.append(f"--perf: {run.perf_why_not}")
    batches = [batch for process in trainers for batch in process.batches]
    if (kept := sum(batch.thinned is None for batch in batches)) < len(batches):
        lost.append(
            f"a long run: {amount(kept)} of {amount(number_of(batches))} batches are kept one by one; of the "
            "others there are sums and histograms, with percentiles right within 1%"
        )
    if not run.live:
        if run.exit_code is None:
            lost.append("the run was cut short: unstarve ended before the command did")
        killed = [
            f"process {p.pid}" if p.rank is None else f"rank {p.rank} (process {p.pid})"
            for p in trainers
            if p.end_ns is None and not _stopped_early(p)
        ]
        if killed:
            record = "its record" if len(killed) == 1 else "their records"
            lost.append(
                f"the run was cut short: {listed(killed)} ended without closing {record} "
                "(killed, crashed, or exited through os._exit)"
            )
    known = {id(process) for process in trainers}
    others = [p for p in run.processes if not p.worker and p.batches and id(p) not in known]
    attempts = {p.attempt for p in others if p.rank is not None} - {p.attempt for p in trainers}
    if attempts:
        others = [p for p in others if p.attempt not in attempts]
        lost.append(_restarts(run, trainers[0].attempt))
    if others:
        count = f"{len(others)} other processes" if len(others) > 1 else "another process"
        lost.append(f"{count} iterated loaders too; this report covers the one that ran longest")
    return tuple(lost)


def _restarts(run: Run, covered: int) -> str:
    """The attempts of an elastic training, and which one the report is about."""
    steps: Counter[int] = Counter()
    for process in run.processes:
        if process.rank is not None and not process.worker and process.batches:
            steps[process.attempt] = max(steps[process.attempt], len(process.batches))
    counts = ", ".join(f"attempt {one + 1} took {steps[one]} steps" for one in sorted(steps))
    restarts = "once" if max(steps) == 1 else f"{max(steps)} times"
    return f"the ranks were restarted {restarts}: {counts}; this report covers attempt {covered + 1}"


def _stopped_early(process: Process) -> bool:
    return any(message.startswith(STOPPED_EARLY) for message in process.lost)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
