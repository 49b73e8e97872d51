"""Run → what its charts show: lanes, batches and histograms, from the same timeline as the verdict."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unstarve.analyze.batch_production import EpochProduction, MadeBatch, recorded_trainings
from unstarve.analyze.blame import blame
from unstarve.analyze.stats import number_of, weighted
from unstarve.analyze.timeline import WARMUP_STEPS, Timeline
from unstarve.model import (
    Batch,
    BatchStory,
    Doing,
    EpochBorder,
    Histogram,
    Lane,
    LaneKind,
    LaneSpan,
    Process,
    Run,
    Views,
)
from unstarve.model.thinned import Sketch

_FEWEST_BINS = 20
_MOST_BINS = 60
_NARROWEST_HISTOGRAM = math.log10(1.1)
"""In powers of ten: equal values are one bar in the middle."""
_SHORTEST_MS = 1e-4
"""Shorter waits, and none at all, count as this."""

MadeBy = Mapping[tuple[int, int], EpochProduction]
Numbers = Mapping[tuple[int, int, int], int]
"""(loader, epoch, position or task) → index into `Views.batches`."""
_TYPICAL_STEPS = 6
"""Enough to see a rhythm, few enough to see each step."""


def views_of(run: Run, warmup_steps: int = WARMUP_STEPS) -> Views | None:
    """What the charts of a run show; None when no training thread received a batch."""
    trainings = recorded_trainings(run, warmup_steps)
    if not trainings:
        return None
    shown = max(trainings, key=lambda training: training.timeline.wait_s)
    timeline, made = _last_in_full(shown.timeline), shown.productions
    process = timeline.process
    origin_ns = timeline.spans[0].begin_ns
    delivered = [span.batch for span in timeline.spans if span.batch is not None]
    # A span may have been split where loaders overlap: each batch once, in the order of requests.
    batches = list(dict.fromkeys(delivered))
    before = number_of({s.batch for s in shown.timeline.spans if s.batch is not None}) - len(batches)
    numbers = {(b.loader, b.epoch, b.position): i for i, b in enumerate(batches)}
    names = {loader.id: loader.name for loader in process.loaders}
    stories = tuple(_stories(batches, made, names, origin_ns))
    measured = shown.timeline.measured_batches
    warmup_end_ns = measured[0].ask_ns if measured else timeline.spans[-1].end_ns
    steps, thinned = shown.timeline.steps, [b.thinned for b in measured if b.thinned is not None]
    return Views(
        rank=process.rank,
        lanes=lanes_of(timeline, made, numbers, origin_ns),
        batches=stories,
        epochs=tuple(
            EpochBorder(names.get(e.loader, "loader"), e.epoch, (e.begin_ns - origin_ns) / 1e9)
            for e in process.epochs
            if not e.nested and e.begin_ns >= origin_ns
        ),
        warmup_end_s=(warmup_end_ns - origin_ns) / 1e9,
        wait_ms=_histogram(
            [b.wait_ns / 1e6 for b in measured if b.thinned is None], [t.wait_sketch for t in thinned]
        ),
        step_ms=_histogram([s.seconds * 1e3 for s in steps if not s.sketch], [s.sketch for s in steps]),
        before=before,
    )


def _last_in_full(timeline: Timeline) -> Timeline:
    """Of a long run, the end, in which every step was kept."""
    places = [place for place, span in enumerate(timeline.spans) if span.batch and span.batch.thinned]
    rest = timeline.spans[places[-1] + 1 :] if places else timeline.spans
    return dataclasses.replace(timeline, spans=rest) if rest else timeline


def lanes_of(timeline: Timeline, made: MadeBy, numbers: Numbers, origin_ns: int) -> tuple[Lane, ...]:
    """Lanes of the training thread, workers, pin thread and devices; `numbers` link spans to batches."""
    process = timeline.process
    names = {loader.id: loader.name for loader in process.loaders}
    number_of_task = (
        {
            (b.loader, b.epoch, b.task): numbers[key]
            for b in process.batches
            if b.task is not None and (key := (b.loader, b.epoch, b.position)) in numbers
        }
        if numbers
        else {}
    )
    lanes = [_main_lane(timeline, numbers, origin_ns)]
    lanes += _worker_lanes(made, names, number_of_task, origin_ns)
    lanes += _pin_lane(process, number_of_task, origin_ns)
    lanes += _device_lanes(process, numbers, origin_ns)
    return tuple(lanes)


def _stories(
    batches: Sequence[Batch], made: MadeBy, names: Mapping[int, str], origin_ns: int
) -> Iterator[BatchStory]:
    following = {
        (a.loader, a.epoch, a.position): b.got_ns
        for of_one in _by_loader(batches)
        for a, b in pairwise(of_one)
        if a.epoch == b.epoch and a.thinned is None is b.thinned
    }
    for batch in batches:
        production = made.get((batch.loader, batch.epoch))
        maker = _maker(batch, production)
        next_ns = following.get((batch.loader, batch.epoch, batch.position))
        yield BatchStory(
            loader=names.get(batch.loader, "loader"),
            epoch=batch.epoch,
            position=batch.position,
            ask_s=(batch.ask_ns - origin_ns) / 1e9,
            got_s=(batch.got_ns - origin_ns) / 1e9,
            step_s=None if next_ns is None else (next_ns - batch.got_ns) / 1e9,
            causes=blame(batch, production),
            worker=maker.worker if maker is not None and production and production.workers else None,
            ready=batch.ready,
            size=batch.size,
        )


def _by_loader(batches: Iterable[Batch]) -> Iterable[list[Batch]]:
    found: dict[int, list[Batch]] = {}
    for batch in batches:
        found.setdefault(batch.loader, []).append(batch)
    return found.values()


def _maker(batch: Batch, production: EpochProduction | None) -> MadeBatch | None:
    if production is None or batch.task is None:
        return None
    return production.by_task.get(batch.task)


def _main_lane(timeline: Timeline, numbers: Numbers, origin_ns: int) -> Lane:
    spans = []
    current: int | None = None
    for span in timeline.spans:
        if span.batch is not None:
            current = numbers.get((span.batch.loader, span.batch.epoch, span.batch.position))
        about = current if span.batch is not None or span.doing is Doing.STEP else None
        spans.append(_span(span.begin_ns, span.end_ns, span.doing, about, origin_ns))
    return Lane("main", LaneKind.MAIN, tuple(spans))


def _worker_lanes(
    made: MadeBy, names: Mapping[int, str], number_of_task: Numbers, origin_ns: int
) -> Iterator[Lane]:
    """One lane per worker number of a loader, over all epochs."""
    spans: dict[tuple[int, int], list[LaneSpan]] = {}
    for (loader, epoch), production in made.items():
        if not production.workers:
            continue
        for place, works in enumerate(production.by_worker):
            lane = spans.setdefault((loader, place), [])
            for one in works:
                lane += _work_spans(one, number_of_task.get((loader, epoch, one.work.task)), origin_ns)
    several = len({loader for loader, _ in spans}) > 1
    for (loader, place), found in sorted(spans.items()):
        name = f"{names.get(loader, 'loader')} worker {place}" if several else f"worker {place}"
        yield Lane(name, LaneKind.WORKER, _in_time(found))


def _work_spans(made: MadeBatch, number: int | None, origin_ns: int) -> Iterator[LaneSpan]:
    work, sent = made.work, made.sent
    yield _span(work.begin_ns, work.collate_ns, Doing.FETCH, number, origin_ns)
    if work.done_ns > work.collate_ns:
        yield _span(work.collate_ns, work.done_ns, Doing.COLLATE, number, origin_ns)
    if sent is not None and sent.end_ns > sent.begin_ns:
        yield _span(sent.begin_ns, sent.end_ns, Doing.SEND, number, origin_ns)


def _pin_lane(process: Process, number_of_task: Numbers, origin_ns: int) -> Iterator[Lane]:
    spans = [
        _span(r.ready_ns, r.pinned_ns, Doing.PIN, number_of_task.get((r.loader, r.epoch, r.task)), origin_ns)
        for r in process.receipts
        if r.pinned_ns > r.ready_ns
    ]
    if spans:
        yield Lane("pin thread", LaneKind.PIN, _in_time(spans))


def _device_lanes(process: Process, numbers: Numbers, origin_ns: int) -> Iterator[Lane]:
    """A device starves at the end of a wait: until then it had work queued."""
    lanes: defaultdict[int, list[LaneSpan]] = defaultdict(list)
    for stall in process.stalls:
        lane = lanes[stall.device]
        if stall.stall_ns > 0:
            about = numbers.get((stall.loader, stall.epoch, stall.position))
            lane.append(_span(stall.got_ns - stall.stall_ns, stall.got_ns, Doing.STALL, about, origin_ns))
    for device, spans in sorted(lanes.items()):
        yield Lane(f"device {device}", LaneKind.DEVICE, _in_time(spans))


def _in_time(spans: Iterable[LaneSpan]) -> tuple[LaneSpan, ...]:
    return tuple(sorted(spans, key=lambda span: span[:2]))


def _span(begin_ns: int, end_ns: int, doing: Doing, batch: int | None, origin_ns: int) -> LaneSpan:
    return LaneSpan((begin_ns - origin_ns) / 1e9, (end_ns - origin_ns) / 1e9, doing, batch)


def _histogram(values_ms: Sequence[float], sketches: Iterable[Sketch] = ()) -> Histogram | None:
    """Bins that grow by a constant factor; a few values far off share a wide one, so the rest has a shape."""
    ms, weights = weighted([value / 1e3 for value in values_ms], sketches)
    if not len(ms):
        return None
    order = np.argsort(ms, kind="stable")
    ordered = _Ordered(
        np.log10(np.maximum(ms[order], _SHORTEST_MS)),
        np.cumsum(np.ones(len(ms)) if weights is None else weights[order]),
    )
    low, high = _bulk(ordered)
    margin = max(_NARROWEST_HISTOGRAM - (high - low), 0.0) / 2
    low, high = low - margin - 1e-9, high + margin  # a bin holds its upper edge: the lowest value is not one
    count = _bin_count(ordered, high - low)
    edges = [*(low + (high - low) * i / count for i in range(count)), high]
    if ordered.logs[0] < low:
        edges.insert(0, float(ordered.logs[0]))
    if ordered.logs[-1] > high:
        edges.append(float(ordered.logs[-1]))
    until = np.searchsorted(ordered.logs, edges[1:], "right")  # a bin holds its upper edge
    sums = np.concatenate([[0.0], ordered.until])[[0, *until[:-1], len(order)]]
    return Histogram(tuple(10**edge for edge in edges), tuple(map(int, np.diff(sums).tolist())))


class _Ordered(NamedTuple):
    """Logarithms in order, and how many values lie up to each."""

    logs: NDArray[np.float64]
    until: NDArray[np.float64]

    @property
    def number(self) -> int:
        return int(self.until[-1])

    def at(self, place: int) -> float:
        """The value at a place in the order, from 0."""
        return float(self.logs[np.searchsorted(self.until, place + 1)])


def _bulk(ordered: _Ordered) -> tuple[float, float]:
    """The range without values that lie further from the middle 90% than these are wide."""
    last = ordered.number - 1
    low, high = ordered.at(round(last * 0.05)), ordered.at(round(last * 0.95))
    far = max(high - low, _NARROWEST_HISTOGRAM)
    logs = ordered.logs
    near = logs[np.searchsorted(logs, low - far) : np.searchsorted(logs, high + far, "right")]
    return float(near[0]), float(near[-1])


def _bin_count(ordered: _Ordered, span: float) -> int:
    """Freedman and Diaconis' rule: the more values and the closer together, the narrower the bins."""
    number = ordered.number
    middle_half = ordered.at(number * 3 // 4) - ordered.at(number // 4)
    width = 2 * middle_half / number ** (1 / 3)
    return _FEWEST_BINS if width == 0 else min(max(math.ceil(span / width), _FEWEST_BINS), _MOST_BINS)


def typical_lanes(timeline: Timeline, made: Mapping[tuple[int, int], EpochProduction]) -> tuple[Lane, ...]:
    """Lanes of the few steps whose duration is nearest to the median; empty for a short run."""
    stretch = _typical_stretch(timeline.measured_batches)
    if stretch is None:
        return ()
    begin_ns, end_ns = stretch
    spans = tuple(
        span.within(begin_ns, end_ns)
        for span in timeline.spans
        if span.end_ns > begin_ns and span.begin_ns < end_ns
    )
    around = {
        key: dataclasses.replace(
            production,
            by_worker=tuple(
                tuple(m for m in works if m.work.done_ns > begin_ns and m.work.begin_ns < end_ns)
                for works in production.by_worker
            ),
        )
        for key, production in made.items()
    }
    process = timeline.process
    inside = dataclasses.replace(
        process,
        receipts=tuple(r for r in process.receipts if r.pinned_ns > begin_ns and r.arrived_ns < end_ns),
        stalls=tuple(s for s in process.stalls if s.got_ns > begin_ns and s.ask_ns < end_ns),
    )
    shown = dataclasses.replace(timeline, process=inside, spans=spans)
    seen = {key: production for key, production in around.items() if any(production.by_worker)}
    return lanes_of(shown, seen, {}, begin_ns)


def _typical_stretch(batches: tuple[Batch, ...]) -> tuple[int, int] | None:
    windows = [
        (first.ask_ns, last.ask_ns)
        for first, last in zip(batches, batches[_TYPICAL_STEPS:], strict=False)
        if (first.epoch, first.position + _TYPICAL_STEPS) == (last.epoch, last.position)
        and not any(one.thinned for one in (first, last))
    ]
    if not windows:
        return None
    usual_ns = median(end - begin for begin, end in windows)
    return min(windows, key=lambda window: abs(window[1] - window[0] - usual_ns))
