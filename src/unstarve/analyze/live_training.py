"""The last seconds of a run → what training and its loaders do now."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from unstarve.analyze.blame import total
from unstarve.analyze.timeline import training_processes, training_thread
from unstarve.analyze.verdict import Thresholds
from unstarve.analyze.worker_activity import LiveWindow, overlap_s, parts_of, worker_now
from unstarve.model import (
    Batch,
    Doing,
    Live,
    Loader,
    LoaderNow,
    MemoryNow,
    Process,
    RunState,
    State,
    Tail,
    TrainerNow,
)

_MOST_IDLE_LOADERS = 50
_LONG_S = 1.5
"""An activity that lasts longer than the interval of pulses is shown with its duration."""
_LATE_STEPS = 2.0
"""After this many usual steps without a batch, the rate drops."""


def live_of(tail: Tail, at_s: float | None = None) -> Live:
    """What a run does now; `at_s` is the current time in seconds since 1970."""
    run, at_s = tail.run, time.time() if at_s is None else at_s
    training = [p for p in training_processes(run) if not all(batch.nested for batch in p.batches)]
    crew = {(p.host, p.pid): p for p in run.processes if p.worker}
    trainers = tuple(_trainer(process, crew, tail) for process in training)
    waiting = max(trainers, key=lambda t: t.wait_share or 0.0, default=None)
    state = _state(tail)
    if state is not RunState.RUNNING and tail.silent_s is not None:
        at_s -= tail.silent_s  # it ended when it was last heard of
    samples = [t.loader.samples_per_s for t in trainers]
    return Live(
        path=run.path,
        command=run.command,
        state=state,
        exit_code=run.exit_code,
        started_at=run.started_at,
        elapsed_s=max(0.0, at_s - run.started_at),
        window_s=tail.window_s,
        steps=max((loader.steps for t in trainers for loader in t.loaders), default=0),
        steps_per_s=_mean_known([t.loader.steps_per_s for t in trainers]),
        samples_per_s=None if None in samples or not samples else sum(s or 0.0 for s in samples),
        wait_share=waiting.wait_share if waiting else None,
        stall_share=waiting.stall_share if waiting else None,
        queue_depth=waiting.loader.queue_depth if waiting else None,
        memory=_together([t.memory for t in trainers]),
        silent_s=tail.silent_s,
        looks=_looks(waiting, Thresholds()),
        trainers=trainers,
    )


def _state(tail: Tail) -> RunState:
    if tail.run.exit_code is not None:
        return RunState.FINISHED
    return RunState.RUNNING if tail.run.live else RunState.DIED


def _looks(trainer: TrainerNow | None, thresholds: Thresholds) -> State | None:
    lost = None if trainer is None else trainer.stall_share
    if trainer is not None and lost is None:
        lost = trainer.wait_share  # the device has not reported
    if lost is None:
        return None
    return (
        State.STARVED
        if lost >= thresholds.starved
        else State.TIGHT
        if lost >= thresholds.tight
        else State.FED
    )


def _trainer(process: Process, crew: Mapping[tuple[str, int], Process], tail: Tail) -> TrainerNow:
    host, thread = process.host, training_thread(b for b in process.batches if not b.nested)
    batches = [b for b in process.batches if b.thread == thread and not b.nested]
    window = _window(process, batches, tail.window_s)
    doing, since_s, waiting_s = _lasting(process, batches, window)
    starts = [(e.begin_ns, e.ready_ns) for e in process.epochs if e.thread == thread and not e.nested]
    waits = [(b.ask_ns, b.got_ns) for b in batches]
    wait_s = sum(overlap_s(begin, end, window) for begin, end in [*starts, *waits]) + waiting_s
    wait_share = min(wait_s / window.seconds, 1.0) if window.seconds else None
    if doing is None and wait_share is not None:
        doing = Doing.WAIT if wait_share > 0.5 else Doing.STEP
    delivered = tail.delivered.get((process.host, process.pid), {})
    described = {loader.id: loader for loader in process.loaders}
    crews = {
        one.loader: [(place, crew[host, pid]) for place, pid in enumerate(one.pids) if (host, pid) in crew]
        for one in process.crews
    }
    by_loader: defaultdict[int, list[Batch]] = defaultdict(list)
    for batch in batches:
        by_loader[batch.loader].append(batch)
    loaders = tuple(
        loader_now(
            described.get(number, Loader(number, f"loader {number + 1}", "", "")),
            process,
            by_loader.get(number, []),
            window,
            delivered,
            crews.get(number, []),
        )
        for number in sorted(_shown(by_loader, delivered))
    )
    leading = _leading(process, batches, thread)
    return TrainerNow(
        rank=process.rank,
        host=process.host,
        pid=process.pid,
        device=process.device,
        doing=doing,
        since_s=since_s,
        main=next(i for i, loader in enumerate(loaders) if loader.id == leading),
        wait_share=wait_share,
        stall_share=wait_share if process.device == "cpu" else _stall_share(process, window),
        loaders=loaders,
        memory=_memory(process, loaders),
    )


def _shown(recent: Iterable[int], delivered: Mapping[int, int]) -> set[int]:
    """Loaders that delivered a batch recently, and of the others those that delivered the most."""
    shown = set(recent)
    others = sorted(delivered.keys() - shown, key=lambda number: -delivered[number])
    return shown | set(others[:_MOST_IDLE_LOADERS])


def _leading(process: Process, batches: Sequence[Batch], thread: int) -> int:
    """The loader in use now: of those whose epoch is not over, the one used most recently.

    A validation loader leads from the beginning of its epoch to its end, then the training loader again.
    """
    newest = {e.loader: e for e in process.epochs if e.thread == thread and not e.nested}
    over = {number for number, epoch in newest.items() if epoch.end_ns is not None}
    begun = [(e.begin_ns, number) for number, e in newest.items() if number not in over]
    begin_ns, last_begun = max(begun, default=(0, batches[-1].loader))
    delivered = Counter(b.loader for b in batches)
    asked = Counter(b.loader for b in batches if b.got_ns > begin_ns and b.loader not in over)
    if not asked and last_begun in delivered:
        return last_begun
    counted = asked or Counter({n: c for n, c in delivered.items() if n not in over}) or delivered
    return max(counted, key=lambda number: (counted[number], -number))


def _window(process: Process, batches: Sequence[Batch], longest_s: float) -> LiveWindow:
    """The last seconds before the newest known event, limited to the events that are kept."""
    end_ns = max(batches[-1].got_ns, process.pulses[-1].at_ns if process.pulses else 0)
    return LiveWindow(max(end_ns - round(longest_s * 1e9), min(batches[0].ask_ns, end_ns)), end_ns)


def _lasting(
    process: Process, batches: Sequence[Batch], window: LiveWindow
) -> tuple[Doing | None, float | None, float]:
    """What training has been doing for a while, for how long, and how much of that is waiting."""
    last_ns = batches[-1].got_ns
    after = [p for p in process.pulses if p.at_ns > last_ns and p.doing is not None]
    if not after:
        return None, None, 0.0
    # Without workers, fetching is what training waits for.
    doing = Doing.STEP if after[-1].doing is Doing.STEP else Doing.WAIT
    # A step began when the batch arrived; a wait when it was first seen after the step.
    begin_ns = last_ns
    if doing is Doing.WAIT:
        others = [i for i, p in enumerate(after) if p.doing is Doing.STEP]
        begin_ns = after[others[-1] + 1].at_ns if others else after[0].at_ns
    lasted_s = (window.end_ns - begin_ns) / 1e9
    waiting_s = overlap_s(begin_ns, window.end_ns, window) if doing is Doing.WAIT else 0.0
    if (window.end_ns - last_ns) / 1e9 < _LONG_S:
        return None, None, waiting_s
    return doing, lasted_s, waiting_s


def _stall_share(process: Process, window: LiveWindow) -> float | None:
    """The devices' stall share up to their latest report, averaged over devices."""
    recent = [s for s in process.stalls if s.got_ns > window.begin_ns]
    if not recent:
        return None
    seen_ns = max(s.got_ns for s in recent) - window.begin_ns
    stalled_ns = sum(min(s.stall_ns, s.wait_ns) for s in recent) / len({s.device for s in recent})
    return min(stalled_ns / seen_ns, 1.0)


def _memory(process: Process, loaders: Iterable[LoaderNow]) -> MemoryNow:
    newest = process.pulses[-1] if process.pulses else None
    workers = [w.rss_bytes for loader in loaders for w in loader.workers if w.rss_bytes is not None]
    return MemoryNow(
        main_bytes=newest.rss_bytes if newest else None,
        workers_bytes=sum(workers) if workers else None,
        shm_bytes=newest.shm_bytes if newest else None,
        shm_total_bytes=newest.shm_total_bytes if newest else None,
    )


def _together(memories: Sequence[MemoryNow]) -> MemoryNow:
    """Sums over ranks; shared memory is common to the ranks of a machine, so the largest value counts."""
    fullest = max(memories, key=lambda m: m.shm_bytes or 0, default=MemoryNow())
    return MemoryNow(
        main_bytes=_sum_known([m.main_bytes for m in memories]),
        workers_bytes=_sum_known([m.workers_bytes for m in memories]),
        shm_bytes=fullest.shm_bytes,
        shm_total_bytes=fullest.shm_total_bytes,
    )


def _sum_known(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _mean_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def loader_now(
    loader: Loader,
    process: Process,
    batches: Sequence[Batch],
    window: LiveWindow,
    delivered: Mapping[int, int],
    crew: Sequence[tuple[int, Process]],
) -> LoaderNow:
    """A loader now; `batches` are its recent ones, `delivered` counts all batches of each loader.

    `crew` are its workers, with their numbers.
    """
    recent = [b for b in batches if b.got_ns > window.begin_ns]
    steps_per_s = _rate([b.got_ns for b in batches], window)
    sizes = [b.size for b in recent or batches[-1:]]
    ready = [b.ready for b in recent if b.ready is not None]
    workers_now = tuple(worker_now(place, worker, window) for place, worker in crew)
    own = [w for w in process.works if w.loader == loader.id and w.done_ns > window.begin_ns]
    parts = total([*(w.parts for w in workers_now), parts_of(own, window, in_worker=False)])
    spent = sum(parts.values())
    waited_s = sum(overlap_s(b.ask_ns, b.got_ns, window) for b in recent)
    config = loader.config
    workers, depth = config.get("num_workers"), config.get("prefetch_factor")
    return LoaderNow(
        id=loader.id,
        name=loader.name,
        where=loader.where,
        epoch=batches[-1].epoch if batches else None,
        position=batches[-1].position if batches else None,
        steps=delivered.get(loader.id, 0),
        steps_per_s=steps_per_s,
        samples_per_s=_samples_per_s(steps_per_s, sizes),
        wait_share=None if not window.seconds else waited_s / window.seconds,
        queue_depth=fmean(ready) if ready else None,
        queue_room=workers * depth if isinstance(workers, int) and isinstance(depth, int) else None,
        parts={cause: part / spent for cause, part in parts.items() if part > 0},
        workers=workers_now,
    )


def _rate(gots_ns: Sequence[int], window: LiveWindow) -> float | None:
    """Batches per second; with slow steps from the last two batches, and lower while the next is late."""
    recent = [at for at in gots_ns if at > window.begin_ns]
    recent = recent if len(recent) > 1 else list(gots_ns[-2:])
    if len(recent) < 2 or recent[-1] <= recent[0]:
        return None
    usual_ns = (recent[-1] - recent[0]) / (len(recent) - 1)
    late_ns = window.end_ns - recent[-1]
    if late_ns < _LATE_STEPS * usual_ns:
        return 1e9 / usual_ns
    if late_ns >= window.end_ns - window.begin_ns:
        return 0.0
    return len(recent) / (window.end_ns - recent[0]) * 1e9


def _samples_per_s(steps_per_s: float | None, sizes: Sequence[int | None]) -> float | None:
    """Samples per second; None when the size of a batch is unknown."""
    known = [size for size in sizes if size is not None]
    return steps_per_s * fmean(known) if steps_per_s is not None and 0 < len(known) == len(sizes) else None
