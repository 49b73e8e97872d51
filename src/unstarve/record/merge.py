"""Run files of several nodes → one run file. Large jobs are folded: most ranks keep windows of steps only.

The first pass reads every file, two or more at a time, and folds each rank as it goes: no more than a few
files are in memory. The second copies what the ranks that others wait for have recorded, and the windows of
all. Streams get new numbers, because files of different nodes may share them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from unstarve.analyze.rank_rounds import folded, folded_rounds
from unstarve.analyze.ranks import joint_rounds, summarize_ranks
from unstarve.errors import RunFileError
from unstarve.machine import usable_cores
from unstarve.model import FoldedSteps, Process
from unstarve.outputs import put_in_place
from unstarve.record import format as f
from unstarve.record.chunks import Chunk, Scan, check_header, chunk
from unstarve.record.fold_rank import FOLDED_KINDS, packed_windows, rounds_of_rows, window_steps
from unstarve.record.metas import meta_of
from unstarve.record.process_stream import ProcessStream
from unstarve.record.run_reader import files_of_run
from unstarve.record.writer import meta_chunk

MOST_FULL_RANKS = 16
"""With more ranks than this, steps are folded, and only a few ranks keep everything."""
_KEPT_FULL = 4
_FEWEST_FILES_FOR_POOL = 8
_OF_FOLDED = ("process", "loader", "batch", "device", "system", "own", "samples", "lost", "end")
"""What a folded rank keeps besides its windows."""
_STREAM = 0


@dataclass
class _Part:
    """One process of one file."""

    stream: int
    meta: dict[str, Any]
    """Its ``process`` META, with the rank and device that it learned later."""
    crew: frozenset[int]
    """Pids of its workers."""
    trains: bool
    metas: list[bytes]
    """Payloads that a folded rank keeps."""
    windows: FoldedSteps | None


@dataclass
class _Contents:
    """What the first pass found in one run file."""

    path: Path
    parts: list[_Part] = field(default_factory=list)
    launch: dict[str, Any] | None = None
    result: dict[str, Any] | None = None


def merge(paths: Sequence[Path], out: Path, *, fold: bool = False) -> str | None:
    """Write one run file from several; returns a sentence if ranks were folded.

    `fold` folds however few ranks there are. Raises `RunFileError` if a file cannot be read or written, and
    when two of them cannot belong to one job.
    """
    read = _read_all(paths, _window(paths))
    _one_job(read)
    ranks = [part for contents in read for part in contents.parts if part.windows is not None]
    folds = fold or len(ranks) > MOST_FULL_RANKS or any(_was_folded(part) for part in ranks)
    full = _kept(ranks) if folds else None
    said = None
    if folds:
        longest = max((max(part.windows.steps) for part in ranks if part.windows), default=1)
        said = (
            f"the steps of {len(ranks)} ranks are folded into windows of up to {longest} steps; "
            f"ranks {', '.join(map(str, sorted(full or ())))} are in full"
        )
    try:
        part_file = out.with_name(out.name + ".merging")
        with part_file.open("wb") as file:
            file.write(f.header())
            for piece in _pieces(read, full, said):
                file.write(piece)
        put_in_place(part_file, out)
    except OSError as error:
        raise RunFileError(
            f"cannot write {out}: {error.strerror or error}; choose another place with -o"
        ) from error
    return said


def _read_all(paths: Sequence[Path], window: int) -> list[_Contents]:
    cores = int(min(usable_cores(), len(paths)))
    if cores < 2 or len(paths) < _FEWEST_FILES_FOR_POOL:
        return [_contents(path, window) for path in paths]
    # Spawned: a fork of a process with threads may hang.
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        return list(pool.map(_contents, paths, [window] * len(paths), chunksize=4))


def _window(paths: Sequence[Path]) -> int:
    """Steps of a window: the same for all ranks, so that windows can be compared."""
    for path in paths:
        most = 0
        for packed, who in _ranks_of(path, {}, {}):
            rounds = rounds_of_rows(packed, who)
            if rounds is not None:
                most = max(most, window_steps(rounds))
        if most:
            return most
    return 1


def _contents(path: Path, window: int) -> _Contents:
    """The first pass over one file."""
    found = _Contents(path)
    streams: dict[int, ProcessStream] = {}
    metas: dict[int, list[bytes]] = {}
    for packed, who in _ranks_of(path, streams, metas):
        rounds = rounds_of_rows(packed, who)
        stream = streams[who["stream"]]
        windows = stream.process_windows() if f.WINDOW in packed else None
        if windows is None and rounds is not None:
            windows = folded(rounds, window)
        crew = frozenset(pid for crew in stream.crews.values() for pid in crew.pids)
        found.parts.append(
            _Part(who["stream"], who, crew, bool(packed.get(f.BATCH)), metas.get(who["stream"], []), windows)
        )
    for stream in streams.values():
        found.launch = stream.newest.get("launch", found.launch)
        found.result = stream.newest.get("result", found.result)
    return found


def _ranks_of(
    path: Path, streams: dict[int, ProcessStream], metas: dict[int, list[bytes]]
) -> Iterator[tuple[Mapping[int, Sequence[tuple[int, bytes]]], dict[str, Any]]]:
    """Of each process in a file: the rows that folding reads, and who it is."""
    for one in _chunks(path):
        stream = streams.setdefault(one.stream, ProcessStream())
        if one.kind == f.META or one.kind in FOLDED_KINDS:
            stream.add(one)
        if one.kind == f.META and _named(one.payload) in _OF_FOLDED:
            metas.setdefault(one.stream, []).append(one.payload)
    for number, stream in streams.items():
        who = stream.newest.get("process")
        if who is None:
            continue
        device = stream.newest.get("device", {})
        rank = device.get("rank")
        more = {"stream": number, "device": device.get("name", "cpu")}
        who = who | more | {"rank": who.get("rank") if rank is None else rank}
        rows = {} if who["worker"] or who["rank"] is None else stream.packed
        yield rows, who


def _chunks(path: Path) -> Iterator[Chunk]:
    for file in files_of_run(path):
        try:
            data = file.read_bytes()
        except OSError as error:
            raise RunFileError(f"cannot read {file}: {error.strerror or error}") from error
        if len(data) >= f.HEADER.size or file == path:
            yield from Scan(data, check_header(file, data), f.HEADER.size)


def _one_job(read: Sequence[_Contents]) -> None:
    """Raise `RunFileError` if two files hold the same rank."""
    seen: dict[tuple[int, int], Path] = {}
    for contents in read:
        for part in contents.parts:
            if part.windows is None:
                continue
            key = (part.meta["rank"], part.meta.get("attempt") or 0)
            other = seen.setdefault(key, contents.path)
            if other != contents.path:
                raise RunFileError(
                    f"{other} and {contents.path} both hold rank {key[0]}: merge only run files of one job, each once"
                )


def _was_folded(part: _Part) -> bool:
    return part.windows is not None and not part.trains


def _kept(parts: Sequence[_Part]) -> set[int]:
    """The ranks that keep everything: those that others wait for most, or else the first ones."""
    rounds = [folded_rounds(_stand_in(part)) for part in parts]
    joint = joint_rounds(rounds)
    known = {part.meta["rank"] for part in parts if part.trains}
    if joint is None:
        return set(sorted(known)[:_KEPT_FULL])
    by_loss = sorted(summarize_ranks(joint).by_rank, key=lambda one: (-one.lost_ms, one.rank))
    return set([one.rank for one in by_loss if one.rank in known][:_KEPT_FULL])


def _stand_in(part: _Part) -> Process:
    meta = part.meta
    return Process(
        meta["pid"], meta["host"], meta["rank"], False, meta["device"], {}, meta["start_ns"], meta["offset_ns"],
        (), (), (), None, None, (), folded=part.windows,
    )  # fmt: skip


def _pieces(read: Sequence[_Contents], full: set[int] | None, said: str | None) -> Iterator[bytes]:
    """The chunks of the merged file; `full` are the ranks that keep everything, None for all."""
    launches = [contents.launch for contents in read if contents.launch is not None]
    if launches:
        first = min(launches, key=lambda launch: launch["started_at"])
        yield meta_chunk(_STREAM, "launch", {n: v for n, v in first.items() if n != "meta"})
    numbers = iter(range(1, 1 << 32))
    for contents in read:
        yield from _copied(contents, full, numbers)
    results = [contents.result for contents in read]
    failed = next((one for one in results if one is not None and one.get("exit_code")), None)
    ended = failed or next((one for one in results if one is not None), None)
    if ended is not None and None not in results:
        errors = [one["error"] for one in results if one is not None and one.get("error")]
        told = {n: v for n, v in ended.items() if n not in ("meta", "folded")}
        error = "; ".join(dict.fromkeys([*errors, *([said] if said else [])])) or None
        yield meta_chunk(_STREAM, "result", told | {"error": error})


def _copied(contents: _Contents, full: set[int] | None, numbers: Iterator[int]) -> Iterator[bytes]:
    crews = {
        (part.meta["host"], pid)
        for part in contents.parts
        if full is None or part.meta["rank"] in full
        for pid in part.crew
    }
    whole, thin, renamed = set[int](), set[int](), dict[int, int]()
    for part in contents.parts:
        renamed[part.stream] = next(numbers)
        ranked = part.windows is not None
        if (
            full is None
            or (ranked and part.meta["rank"] in full)
            or (part.meta["host"], part.meta["pid"]) in crews
        ):
            whole.add(part.stream)
        elif ranked:
            thin.add(part.stream)
    for one in _chunks(contents.path) if whole else ():
        if one.stream in whole and (one.kind != f.WINDOW or full is None):
            yield chunk(renamed[one.stream], one.kind, one.payload, one.row_size)
    for part in contents.parts:
        if part.stream in thin:
            yield from (chunk(renamed[part.stream], f.META, payload) for payload in part.metas)
        if part.windows is not None and full is not None:
            rows = packed_windows(part.windows)
            yield chunk(renamed[part.stream], f.WINDOW, rows, f.ROW_KINDS[f.WINDOW].size)


def _named(payload: bytes) -> str | None:
    try:
        meta = meta_of(payload)
    except ValueError:
        return None
    return None if meta is None else str(meta["meta"])
