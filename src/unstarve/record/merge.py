"""Run files of several nodes → one run file. Large jobs are folded: most ranks keep windows of steps only.

The first pass reads every file, two or more at a time, and folds each rank as it goes: no more than a few
files are in memory. The second copies what the ranks that others wait for have recorded, and the windows of
all. Streams get new numbers, because files of different nodes may share them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
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
from unstarve.record.chunk_table import StreamChunks, chunks_by_stream, joined_rows
from unstarve.record.chunks import check_header, chunk
from unstarve.record.fold_rank import packed_windows, rounds_of_rows, window_steps
from unstarve.record.metas import meta_of
from unstarve.record.process_stream import ProcessStream
from unstarve.record.run_reader import files_of_run
from unstarve.record.writer import meta_chunk

MOST_FULL_RANKS = 16
"""With more ranks than this, steps are folded, and only a few ranks keep everything."""
_KEPT_FULL = 4
_KEPT_OF_NODE = 1
"""With `fold`, which is for one node of many."""
_FEWEST_FILES_FOR_POOL = 8
_OF_FOLDED = ("process", "loader", "batch", "device", "system", "own", "samples", "lost", "end")
"""What a folded rank keeps besides its windows."""
_STREAM = 0

Read = Callable[[Callable[[Path], Any], Sequence[int]], Iterable[Any]]
"""``read(function, numbers)`` calls the function on the run files of these numbers, wherever they are."""


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


def merge(
    paths: Sequence[Path], out: Path, *, fold: bool = False, elsewhere: Read | None = None
) -> str | None:
    """Write one run file from several; returns a sentence if ranks were folded.

    `fold` folds however few ranks there are. With `elsewhere`, other machines read the files. Raises
    `RunFileError` if a file cannot be read or written, and when two of them cannot belong to one job.
    """
    reader = elsewhere or _here(paths)
    read = list(reader(partial(_contents, window=_window(reader, len(paths))), range(len(paths))))
    _one_job(read)
    ranks = [part for contents in read for part in contents.parts if part.windows is not None]
    folds = fold or len(ranks) > MOST_FULL_RANKS or any(_was_folded(part) for part in ranks)
    full = _kept(ranks, _KEPT_OF_NODE if fold else _KEPT_FULL) if folds else None
    said = None
    if folds:
        longest = max((max(part.windows.steps) for part in ranks if part.windows), default=1)
        in_full = ", ".join(map(str, sorted(full or ()))) or "none"
        said = (
            f"the steps of {len(ranks)} ranks are folded into windows of up to {longest} steps; "
            f"recorded in full: {in_full}"
        )
    part_file = out.with_name(out.name + ".merging")
    try:
        with part_file.open("wb") as file:
            file.write(f.header())
            for piece in _pieces(read, full, said, reader):
                file.write(piece)
        put_in_place(part_file, out)
    except OSError as error:
        raise RunFileError(
            f"cannot write {out}: {error.strerror or error}; choose another place with -o"
        ) from error
    finally:  # also Ctrl-C
        part_file.unlink(missing_ok=True)
    return said


def _here(paths: Sequence[Path]) -> Read:
    def read(function: Callable[[Path], Any], numbers: Sequence[int]) -> Iterable[Any]:
        chosen = [paths[number] for number in numbers]
        cores = int(min(usable_cores(), len(chosen)))
        if cores < 2 or len(chosen) < _FEWEST_FILES_FOR_POOL:
            return map(function, chosen)
        # Spawned: a fork of a process with threads may hang.
        with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
            return list(pool.map(function, chosen, chunksize=4))

    return read


def _window(read: Read, files: int) -> int:
    """Steps of a window: the same for all ranks, so that windows can be compared."""
    for number in range(files):
        (width,) = read(_widest_window, [number])
        if width is not None:
            return int(width)
    return 1


def _widest_window(path: Path) -> int | None:
    rounds = [rounds_of_rows(chunks.rows, who) for chunks, who in _ranks(_streams(path))]
    return max((window_steps(one) for one in rounds if one is not None), default=None)


def _contents(path: Path, window: int) -> _Contents:
    """The first pass over one file."""
    found = _Contents(path)
    streams = _streams(path)
    for chunks, who in _ranks(streams):
        stream = ProcessStream()
        rounds = rounds_of_rows(chunks.rows, who)
        windows = None if rounds is None else folded(rounds, window)
        metas = [_meta(payload) for payload in chunks.metas]
        for meta in metas:
            if meta is not None:
                stream.add_meta(meta)
        if f.WINDOW in chunks.rows:
            stream.packed = {f.WINDOW: chunks.rows[f.WINDOW]}
            windows = stream.process_windows()
        crew = frozenset(pid for crew in stream.crews.values() for pid in crew.pids)
        kept = [
            payload
            for payload, meta in zip(chunks.metas, metas, strict=True)
            if meta is not None and meta["meta"] in _OF_FOLDED
        ]
        found.parts.append(_Part(who["stream"], who, crew, bool(chunks.rows.get(f.BATCH)), kept, windows))
    for chunks in streams.values():
        for meta in map(_meta, chunks.metas):
            if meta is not None and meta["meta"] == "launch":
                found.launch = meta
            if meta is not None and meta["meta"] == "result":
                found.result = meta
    return found


def _ranks(streams: Mapping[int, StreamChunks]) -> Iterator[tuple[StreamChunks, dict[str, Any]]]:
    """The processes of a file, and who each is; a process without a rank has no rows here."""
    for number, chunks in streams.items():
        told: dict[str, dict[str, Any]] = {}
        for meta in map(_meta, chunks.metas):
            if meta is not None and meta["meta"] in ("process", "device"):
                told[meta["meta"]] = meta
        if "process" not in told:
            continue
        device = told.get("device", {})
        rank = device.get("rank")
        who = told["process"] | {"stream": number, "device": device.get("name", "cpu")}
        who["rank"] = who.get("rank") if rank is None else rank
        is_rank = not who["worker"] and who["rank"] is not None
        yield (chunks if is_rank else StreamChunks(chunks.metas)), who


def _streams(path: Path) -> dict[int, StreamChunks]:
    found: dict[int, StreamChunks] = {}
    for file in files_of_run(path):
        try:
            data = file.read_bytes()
        except OSError as error:
            raise RunFileError(f"cannot read {file}: {error.strerror or error}") from error
        if len(data) >= f.HEADER.size or file == path:
            for number, chunks in chunks_by_stream(data, check_header(file, data)).items():
                known = found.setdefault(number, StreamChunks())
                known.metas += chunks.metas
                for kind, packed in chunks.rows.items():
                    known.rows[kind] += packed
    return found


def _one_job(read: Sequence[_Contents]) -> None:
    """Raise `RunFileError` if two files hold the same rank."""
    seen: dict[tuple[int, int], _Contents] = {}
    for contents in read:
        for part in contents.parts:
            if part.windows is None:
                continue
            key = (part.meta["rank"], part.meta.get("attempt") or 0)
            other = seen.setdefault(key, contents)
            if other is not contents:
                raise RunFileError(
                    f"{other.path} and {contents.path} both hold rank {key[0]}: "
                    "merge runs of one job, each once"
                )


def _was_folded(part: _Part) -> bool:
    return part.windows is not None and not part.trains


def _kept(parts: Sequence[_Part], most: int) -> set[int]:
    """The ranks that keep everything: those that others wait for most, or else the first ones."""
    rounds = [folded_rounds(_stand_in(part)) for part in parts]
    joint = joint_rounds(rounds)
    known = {part.meta["rank"] for part in parts if part.trains}
    if joint is None:
        return set(sorted(known)[:most])
    by_loss = sorted(summarize_ranks(joint).by_rank, key=lambda one: (-one.lost_ms, one.rank))
    return set([one.rank for one in by_loss if one.rank in known][:most])


def _stand_in(part: _Part) -> Process:
    meta = part.meta
    return Process(
        meta["pid"], meta["host"], meta["rank"], False, meta["device"], {},
        meta["start_ns"], meta["offset_ns"], (), (), (), None, None, (), folded=part.windows,
    )  # fmt: skip


def _pieces(
    read: Sequence[_Contents], full: set[int] | None, said: str | None, reader: Read
) -> Iterator[bytes]:
    """The chunks of the merged file; `full` are the ranks that keep everything, None for all."""
    launches = [contents.launch for contents in read if contents.launch is not None]
    if launches:
        first = min(launches, key=lambda launch: launch["started_at"])
        yield meta_chunk(_STREAM, "launch", {n: v for n, v in first.items() if n != "meta"})
    numbers = iter(range(1, 1 << 32))
    for number, contents in enumerate(read):
        yield from _copied(contents, full, numbers, partial(_read_one, reader, number))
    results = [contents.result for contents in read]
    failed = next((one for one in results if one is not None and one.get("exit_code")), None)
    ended = failed or next((one for one in results if one is not None), None)
    if ended is not None and None not in results:
        errors = [one["error"] for one in results if one is not None and one.get("error")]
        told = {n: v for n, v in ended.items() if n not in ("meta", "folded")}
        error = "; ".join(dict.fromkeys([*errors, *([said] if said else [])])) or None
        yield meta_chunk(_STREAM, "result", told | {"error": error})


def _copied(
    contents: _Contents,
    full: set[int] | None,
    numbers: Iterator[int],
    read: Callable[[Callable[[Path], list[bytes]]], list[bytes]],
) -> Iterator[bytes]:
    crews = {
        (part.meta["host"], pid)
        for part in contents.parts
        if full is None or part.meta["rank"] in full
        for pid in part.crew
    }
    whole, thin, renamed = dict[int, int](), set[int](), dict[int, int]()
    for part in contents.parts:
        renamed[part.stream] = next(numbers)
        ranked = part.windows is not None
        if (
            full is None
            or (ranked and part.meta["rank"] in full)
            or (part.meta["host"], part.meta["pid"]) in crews
        ):
            whole[part.stream] = renamed[part.stream]
        elif ranked:
            thin.add(part.stream)
    if whole:
        yield from read(partial(_whole_streams, whole, keep_windows=full is None))
    for part in contents.parts:
        if part.stream in thin:
            yield from (chunk(renamed[part.stream], f.META, payload) for payload in part.metas)
        if part.windows is not None and full is not None:
            rows = packed_windows(part.windows)
            yield chunk(renamed[part.stream], f.WINDOW, rows, f.ROW_KINDS[f.WINDOW].size)


def _read_one(reader: Read, number: int, function: Callable[[Path], list[bytes]]) -> list[bytes]:
    (pieces,) = reader(function, [number])
    return list(pieces)


def _whole_streams(renamed: Mapping[int, int], path: Path, *, keep_windows: bool) -> list[bytes]:
    """Everything that these streams of a file hold, under their new numbers."""
    pieces = []
    for number, chunks in _streams(path).items():
        if number not in renamed:
            continue
        pieces += [chunk(renamed[number], f.META, payload) for payload in chunks.metas]
        for kind, packed in chunks.rows.items():
            if kind != f.WINDOW or keep_windows:
                pieces += [
                    chunk(renamed[number], kind, rows, row_size) for row_size, rows in joined_rows(packed)
                ]
    return pieces


def _meta(payload: bytes) -> dict[str, Any] | None:
    try:
        return meta_of(payload)
    except ValueError:
        return None
