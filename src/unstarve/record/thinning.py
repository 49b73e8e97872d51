"""Long runs → fewer rows. Everything that shortens a run does it here: the reader, the recording, `fold_run`.

Steps are kept one by one where they say most: the first, the last, the slowest, those around a change of
pace, and some out of every stretch. Whatever happened in their time is kept, too, in workers as well. The
other batches of a stretch become one row, flagged `THINNED`: its wait is as long as theirs together, and
begins with the first. So the time of the training thread still adds up. A `CountRow` says how many batches
those were, and `BucketRow`s hold histograms of their waits and steps: percentiles are right within 0.5%.

Thinning again, after more steps, merges what was merged before; stretches are aligned to a power of two of
nanoseconds, so that each is a whole part of a longer one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from unstarve.record import format as f
from unstarve.record.meta_values import LATEST_NS, MOST_BYTES
from unstarve.record.process_stream import ProcessStream
from unstarve.record.rows import Mask, Rows, layout, rows_of, valid
from unstarve.record.stretches import (
    FOR_EVER,
    Counted,
    Detail,
    Interval,
    Numbers,
    bucket_of,
    chosen,
    firsts_of,
    groups_of,
    joined,
    numbered,
    one_after_the_other,
    overlapping,
    sums_of,
    waits_of,
)

_PREFETCH = 2
"""torch's default."""
_MOST_AHEAD = 512
_BATCH_SUMS = ("sampler_ns", "wait_cpu_ns", "step_cpu_ns")
_UNSURE_SUMS = ("wait_queued_ns", "step_queued_ns")
_COLLATE_SUMS = ("collate_cpu_ns", "collate_system_ns", "opens")
_WORK_SUMS = ("cpu_ns", "system_ns", "major_faults", "switches", *_COLLATE_SUMS)
_UNSURE_WORK_SUMS = ("queued_ns", "delay_ns", "collate_queued_ns")
_BYTE_SUMS = ("asked_bytes", "storage_bytes")


def thin(streams: Iterable[ProcessStream], detail: Detail | None = None) -> None:
    """Thin the rows of processes in place. Give all processes of a machine together: workers follow training.

    Of one training process, at most about `Detail.batches` + `Detail.stretches` × loaders rows of batches
    remain, and of each worker what lies in the same time. Rows of epochs and METAs stay.
    """
    detail = detail or Detail()
    by_host: defaultdict[str, list[ProcessStream]] = defaultdict(list)
    for stream in streams:
        if (who := stream.newest.get("process")) is not None:
            by_host[who["host"]].append(stream)
    for members in by_host.values():
        trainers = [s for s in members if f.BATCH in s.packed and not s.newest["process"]["worker"]]
        is_long = any(_row_count(one, f.BATCH) > detail.above for one in trainers)
        if not is_long and not any(f.COUNT in one.packed for one in trainers):
            continue
        length_ns = _stretch_ns(trainers, detail)
        thinned = (_thin_training(one, length_ns, detail) if is_long else _in_full(one) for one in trainers)
        kept = [interval for intervals in thinned for interval in intervals]
        in_full = joined(kept)
        for stream in members:
            _thin_works(stream, in_full, length_ns, detail)
            _thin_looks(stream, length_ns)


def _row_count(stream: ProcessStream, kind: int) -> int:
    return sum(len(payload) // row_size for row_size, payload in stream.packed.get(kind, ()))


def _take(stream: ProcessStream, kind: int, by: str | None = None) -> Rows:
    """The valid rows of a kind, in the order of a field; invalid ones are counted."""
    rows = rows_of(kind, stream.packed.pop(kind, ()))
    accepted = rows[valid(kind, rows)]
    stream.invalid += len(rows) - len(accepted)
    return accepted if by is None else accepted[np.argsort(accepted[by], kind="stable")]


def _put(stream: ProcessStream, kind: int, *rows: Rows) -> None:
    payload = b"".join(one.tobytes() for one in rows)
    if payload:
        stream.packed[kind] = [(f.ROW_KINDS[kind].size, payload)]


def _stretch_ns(trainers: Sequence[ProcessStream], detail: Detail) -> int:
    """The length of a stretch: a power of two, so that longer ones are made of whole shorter ones."""
    first, last = [], []
    for trainer in trainers:
        rows = rows_of(f.BATCH, trainer.packed[f.BATCH])
        rows = rows[valid(f.BATCH, rows)]
        if len(rows):
            first.append(int(rows["ask_ns"].min()))
            last.append(int(rows["got_ns"].max()))
    span_ns = max(last, default=0) - min(first, default=0)
    return 1 << max(span_ns // max(detail.stretches, 1), 1).bit_length()


# The training process.


def _thin_training(stream: ProcessStream, length_ns: int, detail: Detail) -> list[Interval]:
    """Thin what training received. Return the stretches of time that are kept in full."""
    rows = _take(stream, f.BATCH, "ask_ns")
    counts, buckets = _take(stream, f.COUNT), _take(stream, f.BUCKET)
    passes = _take(stream, f.BACKWARD, "at_ns")
    cuts = _epoch_moments(stream)
    rows, stands = _counted(stream, rows, counts[counts["kind"] == f.BATCH], cuts)
    last_before = _last_before(rows, passes)
    stands.backwards[:] += np.bincount(last_before[last_before >= 0], minlength=len(rows))
    kept = (rows["flags"] & f.THINNED) == 0
    if len(rows) > detail.above or not kept.all():
        kept &= chosen(rows, stands, length_ns, detail)
    groups = groups_of(rows, kept, cuts, length_ns)
    thinned, counted = _merged(rows[~kept], groups, Counted(*(part[~kept] for part in stands)))
    _put(stream, f.BATCH, rows[kept], thinned)
    _put(stream, f.COUNT, counted, counts[counts["kind"] != f.BATCH])
    _put(stream, f.BUCKET, _buckets(rows, stands, kept, groups, counted, buckets))
    stays = np.append(kept, True)  # of each batch; at -1, before the first
    _put(stream, f.BACKWARD, passes[stays[last_before]])
    meetings = _take(stream, f.MEETING, "at_ns")
    met = np.searchsorted(rows["got_ns"], meetings["at_ns"], side="right") - 1
    _put(stream, f.MEETING, meetings[stays[met]])
    _thin_stalls(stream, rows, kept, groups, thinned)
    intervals = _intervals(stream, rows, kept)
    received = _take(stream, f.RECEIVED)
    _put(stream, f.RECEIVED, received[overlapping(received["arrived_ns"], received["pinned_ns"], intervals)])
    return intervals


def _in_full(stream: ProcessStream) -> list[Interval]:
    """What is kept in full of a training that was thinned before all its workers were read: it stays so."""
    rows = _take(stream, f.BATCH, "ask_ns")
    _put(stream, f.BATCH, rows)
    return _intervals(stream, rows, (rows["flags"] & f.THINNED) == 0)


def _epoch_moments(stream: ProcessStream) -> Numbers:
    """When epochs began and ended: no stretch is merged across these moments."""
    begins = rows_of(f.EPOCH_BEGIN, stream.packed.get(f.EPOCH_BEGIN, ()))["begin_ns"]
    ends = rows_of(f.EPOCH_END, stream.packed.get(f.EPOCH_END, ()))["ask_ns"]
    return np.sort(np.concatenate([begins, ends]).astype(np.int64))


def _counted(stream: ProcessStream, rows: Rows, counts: Rows, cuts: Numbers) -> tuple[Rows, Counted]:
    """Rows, and what each stands for. A thinned row whose count is lost is invalid."""
    told = {(int(one["loader"]), int(one["epoch"]), int(one["position"])): one for one in counts}
    thinned = np.flatnonzero(rows["flags"] & f.THINNED)
    keys = zip(*(rows[name][thinned].tolist() for name in ("loader", "epoch", "position")), strict=True)
    found = {place: told[key] for place, key in zip(thinned.tolist(), keys, strict=True) if key in told}
    known = np.ones(len(rows), bool)
    known[thinned] = False
    known[list(found)] = True
    stream.invalid += int((~known).sum())
    number = np.cumsum(known) - 1
    rows = rows[known]
    end_ns = rows["got_ns"].astype(np.int64)
    zeros = (np.zeros(len(rows), np.int64) for _ in range(3))
    stands = Counted(np.ones(len(rows), np.int64), rows["size"].astype(np.int64), end_ns, *zeros)
    for place, one in found.items():
        for name, column in stands._asdict().items():
            column[number[place]] = one[name]
    _add_steps(rows, stands, cuts)
    return rows, stands


def _add_steps(rows: Rows, stands: Counted, cuts: Numbers) -> None:
    """Add the step that ends with each row that is not thinned, unless an epoch begins or ends in it."""
    order = np.lexsort((rows["ask_ns"], rows["thread"], rows["epoch"], rows["loader"]))
    before, after = order[:-1], order[1:]
    same = np.ones(len(after), bool)
    for name in ("loader", "epoch", "thread"):
        same &= rows[name][before] == rows[name][after]
    same &= rows["position"][before] + stands.number[before] == rows["position"][after]
    same &= (rows["flags"][after] & f.THINNED) == 0
    begin_ns, end_ns = stands.end_ns[before], stands.end_ns[after]
    same &= np.searchsorted(cuts, begin_ns) == np.searchsorted(cuts, end_ns)
    same &= end_ns > begin_ns
    stands.steps[after[same]] = 1
    stands.step_ns[after[same]] = (end_ns - begin_ns)[same]


def _last_before(rows: Rows, passes: Rows) -> Numbers:
    """By backward pass: the row of its thread that was delivered last before it; -1 for none."""
    found = np.full(len(passes), -1, np.int64)
    for thread in np.unique(passes["thread"]):
        own = np.flatnonzero((rows["thread"] == thread) & ((rows["flags"] & f.NESTED) == 0))
        theirs = passes["thread"] == thread
        place = (
            np.searchsorted(np.maximum.accumulate(rows["got_ns"][own]), passes["at_ns"][theirs], "right") - 1
        )
        found[theirs] = np.where(place >= 0, own[np.maximum(place, 0)], -1) if len(own) else -1
    return found


def _merged(rows: Rows, groups: Numbers, stands: Counted) -> tuple[Rows, Rows]:
    """One row for each group of rows, and its count."""
    first = firsts_of(groups)
    thinned = rows[first].copy()
    wait_ns = sums_of(waits_of(rows), groups)
    thinned["flags"] |= f.THINNED
    for name in ("task", "ready", "size"):
        thinned[name] = -1
    thinned["nbytes"] = sums_of(rows["nbytes"], groups, unsure=True, most=MOST_BYTES)
    thinned["own_ns"] = np.minimum(sums_of(rows["own_ns"], groups), 2**32 - 1)
    for name in _BATCH_SUMS:
        thinned[name] = sums_of(rows[name], groups)
    for name in _UNSURE_SUMS:
        thinned[name] = sums_of(rows[name], groups, unsure=True)
    for thread in np.unique(thinned["thread"]):
        own = (thinned["thread"] == thread) & ((thinned["flags"] & f.NESTED) == 0)
        thinned["ask_ns"][own] = one_after_the_other(thinned["ask_ns"][own].astype(np.int64), wait_ns[own])
    thinned["got_ns"] = thinned["ask_ns"] + wait_ns.astype(np.uint64)
    counted = np.zeros(len(first), layout(f.COUNT))
    counted["kind"] = f.BATCH
    for name in ("loader", "epoch", "position", "flags"):
        counted[name] = thinned[name]
    counted["samples"] = sums_of(stands.samples, groups, unsure=True)
    end_ns = np.zeros(len(first), np.int64)
    np.maximum.at(end_ns, groups, stands.end_ns)
    counted["end_ns"] = end_ns
    for name in ("number", "steps", "step_ns", "backwards"):
        counted[name] = sums_of(getattr(stands, name), groups)
    return thinned, counted


def _buckets(rows: Rows, stands: Counted, kept: Mask, groups: Numbers, counted: Rows, before: Rows) -> Rows:
    """Histograms of the groups: of their single batches, and of those that were thinned before."""
    number = np.full(len(rows), -1, np.int64)
    number[~kept] = groups
    single = ~kept & ((rows["flags"] & f.THINNED) == 0)
    stepped = single & (stands.steps > 0)
    waits, steps = bucket_of(waits_of(rows)[single]), bucket_of(stands.step_ns[stepped])
    group_of = {
        (int(row["loader"]), int(row["epoch"]), int(row["position"])): int(number[place])
        for place, row in zip(np.flatnonzero(~kept & ~single), rows[~kept & ~single], strict=True)
    }
    keys = zip(*(before[name].tolist() for name in ("loader", "epoch", "position")), strict=True)
    earlier = np.array([group_of.get(key, -1) for key in keys], np.int64)
    before, earlier = before[earlier >= 0], earlier[earlier >= 0]
    measure = np.concatenate([np.full(len(waits), f.WAITS), np.full(len(steps), f.STEPS), before["measure"]])
    group = np.concatenate([number[single], number[stepped], earlier])
    bucket = np.concatenate([waits, steps, before["bucket"].astype(np.int64)])
    weight = np.concatenate([np.ones(len(waits) + len(steps), np.int64), before["number"].astype(np.int64)])
    key, place = np.unique((group * 2 + measure) << 13 | bucket, return_inverse=True)
    found = np.zeros(len(key), layout(f.BUCKET))
    found["number"] = np.minimum(np.bincount(place, weight, len(key)), 2**32 - 1)
    found["bucket"], found["measure"] = key & 0x1FFF, (key >> 13) % 2
    for name in ("loader", "epoch", "position"):
        found[name] = counted[name][key >> 14]
    return found


def _thin_stalls(stream: ProcessStream, rows: Rows, kept: Mask, groups: Numbers, thinned: Rows) -> None:
    """Stalls of batches that were merged become one for each device."""
    stalls = _take(stream, f.STALL)
    if not len(stalls) or not len(rows):
        _put(stream, f.STALL, stalls)
        return
    number = np.full(len(rows), -1, np.int64)
    number[~kept] = groups
    place = np.searchsorted(rows["ask_ns"], stalls["ask_ns"], "right") - 1
    group = np.where((place >= 0) & (stalls["wait"] == f.BATCH_WAIT), number[np.maximum(place, 0)], -1)
    merging = group >= 0
    merged, (own, first) = stalls[merging], numbered([group[merging], stalls["device"][merging]])
    found = merged[first].copy()
    found["position"] = thinned["position"][group[merging][first]]
    found["ask_ns"] = thinned["ask_ns"][group[merging][first]]
    found["got_ns"] = found["ask_ns"] + sums_of(merged["got_ns"] - merged["ask_ns"], own).astype(np.uint64)
    found["stall_ns"] = sums_of(merged["stall_ns"], own)
    _put(stream, f.STALL, stalls[~merging], found)


def _intervals(stream: ProcessStream, rows: Rows, kept: Mask) -> list[Interval]:
    """The time of the batches kept in full, with that in which workers made them."""
    if kept.all():
        return [(0, FOR_EVER)]
    ahead = min(sum(map(_ahead, stream.loaders.values())), _MOST_AHEAD)
    single = rows[kept & (rows["position"] > 0)]
    typical_ns = int(np.median(np.diff(rows["ask_ns"].astype(np.int64)))) if len(rows) > 1 else 0
    margin_ns = min(ahead * typical_ns * 3 // 2, LATEST_NS)
    begin = single["ask_ns"].astype(np.int64) - margin_ns
    intervals = joined(zip(begin.tolist(), single["got_ns"].tolist(), strict=True))
    return [*intervals[:-1], *((begin, FOR_EVER) for begin, _ in intervals[-1:])]


def _ahead(loader: Mapping[str, Any]) -> int:
    """Batches that the workers of a loader may be ahead."""
    config = loader.get("config") or {}
    workers, prefetch = config.get("num_workers"), config.get("prefetch_factor")
    workers = workers if isinstance(workers, int) else 0
    return max(workers, 0) * (1 + max(prefetch if isinstance(prefetch, int) else _PREFETCH, 0))


# Workers, and batches that the training process makes itself.


def _thin_works(stream: ProcessStream, in_full: Sequence[Interval], length_ns: int, detail: Detail) -> None:
    rows = _take(stream, f.WORK, "begin_ns")
    sents, helped = _take(stream, f.SENT), rows_of(f.HELPED, stream.packed.pop(f.HELPED, ()))
    counts = _take(stream, f.COUNT)
    ours = counts["kind"] == f.WORK
    told = {tuple(int(c[name]) for name in ("loader", "epoch", "position")): c for c in counts[ours]}
    single = (rows["flags"] & f.THINNED) == 0
    kept = single & (
        overlapping(rows["begin_ns"], rows["done_ns"], in_full)
        | ((rows["task"] == 0) & (rows["loader"] != f.NO_LOADER))
        | (rows["flags"] & f.FAILED > 0)
    )
    slowest = np.argsort(np.where(single, rows["slow_ns"], -1), kind="stable")[::-1][: detail.batches // 128]
    kept[slowest[single[slowest]]] = True
    others = rows[~kept]
    groups, first = numbered([others["begin_ns"] // length_ns, others["loader"], others["iteration"]])
    thinned = others[first].copy()
    thinned["flags"] |= f.THINNED
    fetch_ns = sums_of(others["collate_ns"] - others["begin_ns"], groups).astype(np.uint64)
    thinned["collate_ns"] = thinned["begin_ns"] + fetch_ns
    collate_ns = sums_of(others["done_ns"] - others["collate_ns"], groups).astype(np.uint64)
    thinned["done_ns"] = thinned["collate_ns"] + collate_ns
    for name in _WORK_SUMS:
        known = np.maximum(others[name].astype(np.int64), 0)
        thinned[name] = np.minimum(sums_of(known, groups), np.iinfo(thinned[name].dtype).max)
    for name in _UNSURE_WORK_SUMS:
        thinned[name] = sums_of(others[name], groups, unsure=True)
    for name in _BYTE_SUMS:
        thinned[name] = sums_of(others[name], groups, unsure=True, most=MOST_BYTES)
    thinned["slow_index"], thinned["slow_ns"] = -1, 0
    counted = np.zeros(len(first), layout(f.COUNT))
    counted["kind"] = f.WORK
    for name, own in (("loader", "loader"), ("epoch", "iteration"), ("position", "task")):
        counted[name] = thinned[own]
    stood = [
        told.get((int(r["loader"]), int(r["iteration"]), int(r["task"]))) for r in others[~single[~kept]]
    ]
    for name, alone in (("number", np.ones(len(others), np.int64)), ("samples", others["samples"])):
        values = alone.astype(np.int64)
        values[~single[~kept]] = [1 if one is None else int(one[name]) for one in stood]
        counted[name] = sums_of(values, groups)
    thinned["samples"] = np.minimum(counted["samples"], 2**32 - 1)
    done = np.zeros(len(first), np.int64)
    np.maximum.at(done, groups, others["done_ns"].astype(np.int64))
    counted["end_ns"] = done
    _put(stream, f.WORK, rows[kept], thinned)
    _put(stream, f.COUNT, counts[~ours], counted)
    tasks = _tasks(rows[kept])
    _put(stream, f.SENT, sents[np.isin(_tasks(sents), tasks)])
    _put(stream, f.HELPED, helped[np.isin(_tasks(helped), tasks)])


def _tasks(rows: Rows) -> Numbers:
    """One number for each iteration and task."""
    found: Numbers = rows["iteration"].astype(np.int64) << 32 | rows["task"].astype(np.int64)
    return found


def _thin_looks(stream: ProcessStream, length_ns: int) -> None:
    """Of readings that are taken at intervals, the last of every stretch: counters in them only grow."""
    for kind in (f.PULSE, f.MEMORY, f.GAUGE, f.ENGINES):
        rows = _take(stream, kind, "at_ns")[::-1]
        of = rows["device"] if kind in (f.GAUGE, f.ENGINES) else np.zeros(len(rows))
        last = numbered([rows["at_ns"] // length_ns, of])[1]
        _put(stream, kind, rows[last][::-1])


def only_thinned(stream: ProcessStream) -> bool:
    """Whether nothing that a process made is kept one by one."""
    rows = rows_of(f.WORK, stream.packed.get(f.WORK, ()))
    return bool(((rows["flags"] & f.THINNED) > 0).all())


def adopt(heir: ProcessStream, others: Iterable[ProcessStream]) -> None:
    """Move the thinned works of other processes to `heir`, as if it had made them all in one iteration."""
    works, counts = [], []
    for stream in (heir, *others):
        rows, told = _take(stream, f.WORK), _take(stream, f.COUNT)
        known = {(int(c["epoch"]), int(c["position"])): place for place, c in enumerate(told)}
        pairs = [
            (place, known[key])
            for place, key in enumerate(zip(rows["iteration"].tolist(), rows["task"].tolist(), strict=True))
            if key in known
        ]
        works.append(rows[[place for place, _ in pairs]])
        counts.append(told[[place for _, place in pairs]])
    work, count = np.concatenate(works), np.concatenate(counts)
    work["iteration"] = count["epoch"] = 0
    work["task"] = count["position"] = np.arange(len(work))
    _put(heir, f.WORK, work)
    _put(heir, f.COUNT, count)
