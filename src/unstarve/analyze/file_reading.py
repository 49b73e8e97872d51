"""The counts of `unstarve run --io` → `ReadSummary`: what of it was used, and which pattern costs time."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence

from unstarve.analyze.read_remedies import less_to_read
from unstarve.analyze.stats import known_total
from unstarve.model import Process, Run
from unstarve.model.file_reads import FileReads, ProcessReads, ReadPattern, ReadSummary, RecordedReads
from unstarve.words import duration, mean_count, percent, size, times

_MANY = 100
"""Opens or reads from which a pattern is one."""
_SMALL_FILE_BYTES = 512_000
_SMALL_READ_BYTES = 64_000
_MUCH_BYTES = 1_000_000
_COLD_SHARE = 0.3
_SLOW_SHARE = 0.5
_FEWEST_SLOW_S = 0.05
_JUMP_SHARE = 0.5
_WASTE = 2.0
"""Bytes read for every byte used, and readings of a whole file in an epoch, from which one is told."""
_REOPENED = 10
"""Opens of one file by one process in an epoch."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Loading:
    """The reads of the processes that load, together."""

    files: int
    opens: int
    open_s: float
    reads: int
    bytes: int
    seconds: float
    slow_reads: int
    slow_s: float
    mapped_bytes: int
    storage_bytes: int | None
    samples: int | None
    epochs: int
    kind: str


def summarize_reads(run: Run, trainers: Sequence[Process]) -> ReadSummary | None:
    """The summary; None when reads were not to be counted."""
    recorded = run.reads
    if recorded is None:
        return None
    processes = _with_roles(recorded.processes, run)
    loading = _loading(recorded, processes, run, trainers)
    used = _used_bytes(trainers)
    ratio = _read_per_used(loading, used)
    return ReadSummary(
        why_not=recorded.why_not,
        opens=loading.opens,
        reads=loading.reads,
        read_bytes=loading.bytes,
        used_bytes=used,
        read_per_used=ratio,
        storage_bytes=loading.storage_bytes,
        patterns=tuple(_patterns(recorded.files, loading, used, ratio)),
        kinds=recorded.kinds,
        files=recorded.files,
        processes=processes,
    )


def _read_per_used(loading: _Loading, used: int | None) -> float | None:
    if not used:
        return None
    if not loading.mapped_bytes:
        return loading.bytes / used
    # Reading a memory-mapped file needs no call. All that is known is what storage had to answer.
    storage = loading.storage_bytes or 0
    return storage / used if storage > used else None


def _with_roles(processes: Sequence[ProcessReads], run: Run) -> tuple[ProcessReads, ...]:
    roles = {process.pid: "worker" if process.worker else "training" for process in run.processes}
    return tuple(dataclasses.replace(one, role=roles.get(one.process, "")) for one in processes)


def _loading(
    recorded: RecordedReads, processes: Sequence[ProcessReads], run: Run, trainers: Sequence[Process]
) -> _Loading:
    workers = [one for one in processes if one.role == "worker"]
    chosen = workers if any(one.opens or one.reads for one in workers) else []
    chosen = chosen or [one for one in processes if one.role == "training"] or list(processes)
    main = max(recorded.kinds, key=lambda one: max(one.bytes, one.mapped_bytes), default=None)
    return _Loading(
        files=sum(one.files for one in chosen),
        opens=sum(one.opens for one in chosen),
        open_s=sum(one.open_s for one in chosen),
        reads=sum(one.reads for one in chosen),
        bytes=sum(one.bytes for one in chosen),
        seconds=sum(one.seconds for one in chosen),
        slow_reads=sum(one.slow_reads for one in chosen),
        slow_s=sum(one.slow_s for one in chosen),
        mapped_bytes=sum(one.mapped_bytes for one in chosen),
        storage_bytes=_storage_bytes(run, {one.process for one in chosen}),
        samples=known_total([batch.size for p in trainers for batch in p.batches if not batch.nested]),
        epochs=max((n for p in trainers for n in Counter(e.loader for e in p.epochs).values()), default=1),
        kind="" if main is None else main.kind,
    )


def _storage_bytes(run: Run, pids: set[int]) -> int | None:
    return known_total([work.storage_bytes for p in run.processes if p.pid in pids for work in p.works])


def _used_bytes(trainers: Sequence[Process]) -> int | None:
    return known_total([batch.nbytes for p in trainers for batch in p.batches if not batch.nested])


def _patterns(
    files: Sequence[FileReads], loading: _Loading, used: int | None, ratio: float | None
) -> Iterator[ReadPattern]:
    yield from _small_files(loading)
    yield from _reopened(files, loading)
    yield from _unused(files, loading, used, ratio)
    yield from _cold(loading)
    yield from _random(files)


def _small_files(loading: _Loading) -> Iterator[ReadPattern]:
    if loading.opens < _MANY or loading.bytes > loading.opens * _SMALL_FILE_BYTES:
        return
    if loading.opens >= _REOPENED * loading.files * loading.epochs:
        return  # few files, opened again and again
    opens, each = mean_count(loading.opens), size(loading.bytes / loading.opens)
    per_sample = (
        f", {mean_count(round(loading.opens / loading.samples, 1))} for every sample"
        if loading.samples
        else ""
    )
    kind = f"{loading.kind} files" if loading.kind else "files"
    yield ReadPattern(
        "small_files",
        f"Loading opens small files: {opens} opens of {kind} of about {each}{per_sample}. "
        f"Opening them takes {duration(loading.open_s)}, reading them {duration(loading.seconds)}.",
        "Pack them into one file with unstarve pack and PackedDataset, or into tar shards.",
    )


def _reopened(files: Sequence[FileReads], loading: _Loading) -> Iterator[ReadPattern]:
    most = max(_listed(files), key=lambda one: one.opens, default=None)
    if most is None or most.opens < max(_MANY, _REOPENED * most.processes * loading.epochs):
        return
    taken = f" That takes {duration(most.open_s)}."
    yield ReadPattern(
        "reopened_file",
        f"Loading opens the same file again and again: {most.path}, {mean_count(most.opens)} times.{taken}",
        "Open it once in each worker, when the first sample is read, and keep it open.",
    )


def _unused(
    files: Sequence[FileReads], loading: _Loading, used: int | None, ratio: float | None
) -> Iterator[ReadPattern]:
    if ratio is not None and used is not None and ratio >= _WASTE and ratio * used >= _MUCH_BYTES:
        read = size(ratio * used)
        yield ReadPattern(
            "unused_bytes",
            f"Loading reads {times(ratio)} the bytes that its batches hold: {read} for {size(used)}.",
            less_to_read(loading.kind),
        )
        return
    again = [
        (one.bytes / (one.file_bytes * loading.epochs), one)
        for one in _listed(files)
        if one.file_bytes and one.bytes >= _MUCH_BYTES
    ]
    most, file = max(again, key=lambda one: one[0], default=(0.0, None))
    if file is not None and most >= _WASTE:
        yield ReadPattern(
            "unused_bytes",
            f"Loading reads {file.path} {times(most)} over in every epoch ({size(file.bytes)} in all).",
            less_to_read(file.kind),
        )


def _cold(loading: _Loading) -> Iterator[ReadPattern]:
    storage, read = loading.storage_bytes or 0, loading.bytes
    slow_s = loading.slow_s / max(loading.slow_reads, 1)
    by_storage = storage >= _MUCH_BYTES and storage >= _COLD_SHARE * read
    by_time = loading.slow_s >= max(_FEWEST_SLOW_S, _SLOW_SHARE * loading.seconds)
    if not by_storage and not (by_time and loading.slow_reads >= _MANY):
        return
    if not by_storage:
        share = f"{mean_count(loading.slow_reads)} of {mean_count(loading.reads)} reads come"
    elif loading.mapped_bytes:
        share = f"{size(storage)} come"
    else:
        share = f"{percent(min(storage / read, 1.0))} of the bytes come"
    slow = f"; a slow read takes {duration(slow_s)}" if loading.slow_reads else ""
    yield ReadPattern(
        "cold_reads",
        f"Loading reads cold files: {share} from storage, not from memory{slow}.",
        "Keep the samples in memory with CachedDataset if they fit; else use a faster disk or more workers.",
    )


def _random(files: Sequence[FileReads]) -> Iterator[ReadPattern]:
    for one in _listed(files):
        enough = one.reads >= _MANY and one.bytes <= one.reads * _SMALL_READ_BYTES
        if enough and one.opens < one.reads / 2 and one.jumps >= _JUMP_SHARE * one.reads:
            each = size(one.bytes / one.reads)
            yield ReadPattern(
                "random_reads",
                f"Loading jumps about in {one.path}: {mean_count(one.reads)} reads of about {each}.",
                "Shuffle blocks of neighbouring samples instead of single ones, and read a block at once.",
            )
            return


def _listed(files: Sequence[FileReads]) -> list[FileReads]:
    return [one for one in files if one.file_bytes is not None]
