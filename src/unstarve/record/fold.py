"""Keep the files of a run small: thin what has been written so far, while training goes on.

Every process writes in segments (see `writer.Writer`): only the last one grows. The closed segments of all
processes are read together and replaced by one part, `FOLDED`, of thinned rows. Its first META lists the
segments that it holds, so that none is read twice if whoever removes them is killed in between.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from unstarve.record import format as f
from unstarve.record.chunks import Chunk, FileScan, check_header
from unstarve.record.metas import meta_of
from unstarve.record.process_stream import ProcessStream
from unstarve.record.run_file import parts_folder, parts_of
from unstarve.record.stretches import Detail
from unstarve.record.thinning import adopt, only_thinned, thin
from unstarve.record.writer import meta_chunk, rows_chunks

DEFAULT_MAX_BYTES = 256 << 20
SMALLEST_MAX_BYTES = 8 << 20
_SEGMENTS = 256
"""Of the largest file, as many segments as this."""
_LOOK_EVERY_S = 2.0
_REPEATED = frozenset(
    {"launch", "result", "process", "end", "streams", "sampled", "loop", "own", "transforms", "perf"}
    | {"allocated", "device", "profile", "io"}
)
"""METAs of which the last one counts."""
_BY_LOADER = frozenset({"batch", "draws", "kept"})
_MOST_SIZES = 1000
_FEWEST_STRETCHES = 4
_HELD_BYTES = 1 << 26


def segment_bytes(max_bytes: int) -> int:
    """The size of a segment in a run that is to stay below `max_bytes`."""
    return max(max_bytes // _SEGMENTS, 1 << 16)


class KeepSmall:
    """Use as a context around the recording of a run: its files stay below `max_bytes`, more or less.

    Each process may have one open segment in addition. If thinning cannot keep up, because there are too many
    epochs or processes, every process stops recording and says so.
    """

    def __init__(self, run: Path, max_bytes: int) -> None:
        self._parts = parts_folder(run)
        self._max_bytes = max_bytes
        self._folded_bytes = 0
        """Size of all parts after they were folded last."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="unstarve-fold", daemon=True)

    def __enter__(self) -> KeepSmall:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """What remains is folded once more if it is too large: most processes have ended by now."""
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(Exception):  # the run is whole without it
            if _size(parts_of(self._parts)) > self._max_bytes:
                self._fold(closed(parts_of(self._parts)))

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_EVERY_S):
            with contextlib.suppress(Exception):  # the next look tries again; training must go on
                self.look()

    def look(self) -> None:
        """Fold the closed segments if all parts together have become large."""
        size = _size(parts_of(self._parts))
        if size > self._max_bytes // 2 and size - self._folded_bytes > self._max_bytes // 8:
            self._fold(closed(parts_of(self._parts)))

    def _fold(self, parts: Sequence[Path]) -> None:
        folded = self._parts / f.FOLDED
        fold(parts, folded, self._max_bytes // 4)
        for part in parts:
            if part != folded:
                part.unlink(missing_ok=True)
        self._folded_bytes = _size(parts_of(self._parts))
        if self._folded_bytes > self._max_bytes:
            (self._parts / f.FULL).touch()


def _size(paths: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in paths)


def closed(parts: Sequence[Path]) -> list[Path]:
    """Parts that do not grow any more: all of ended processes, and all but the last of the others."""
    newest: dict[str, tuple[int, Path]] = {}
    for part in parts:
        stem, number = f.segment_of(part.name)
        newest[stem] = max(newest.get(stem, (-1, part)), (number, part))
    open_now = {part for stem, (_, part) in newest.items() if part.name != f.FOLDED and not _ended(stem)}
    return [part for part in parts if part not in open_now]


def _ended(stem: str) -> bool:
    """Whether the process that writes to these segments is gone; ``HOST-PID-TIME`` names it."""
    host, _, rest = stem.rpartition("-")[0].rpartition("-")
    if host != socket.gethostname() or not rest.isdecimal():
        return False
    try:
        os.kill(int(rest), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it exists, but belongs to another user
    return False


class _Held:
    """What the processes of a run have written, thinned whenever it becomes much."""

    def __init__(self, detail: Detail) -> None:
        self.streams: dict[int, ProcessStream] = {}
        self.said: defaultdict[int, list[tuple[str, bytes]]] = defaultdict(list)
        """METAs by stream: name and payload."""
        self.detail = detail
        self._bytes = 0

    def add(self, chunk: Chunk) -> None:
        self.streams.setdefault(chunk.stream, ProcessStream()).add(chunk)
        self._bytes += len(chunk.payload)
        if self._bytes > _HELD_BYTES:
            self._bytes = 0
            thin(self.streams.values(), self.detail)
        if chunk.kind == f.META:
            with contextlib.suppress(ValueError):
                meta = meta_of(chunk.payload)
                if meta is not None and meta["meta"] not in ("reserve", "folded"):
                    self.said[chunk.stream].append((meta["meta"], chunk.payload))

    def join_ended_workers(self) -> None:
        """Ended workers of which nothing is kept in full become one: every epoch may have new ones."""
        ended: defaultdict[str, list[int]] = defaultdict(list)
        for number, stream in self.streams.items():
            who = stream.newest.get("process", {})
            if who.get("worker") and "end" in stream.newest and only_thinned(stream):
                ended[who["host"]].append(number)
        for first, *others in ended.values():
            adopt(self.streams[first], [self.streams[number] for number in others])
            self.said[first] += _together([self.streams[number] for number in (first, *others)])
            for number in others:
                self.said[first] += [one for one in self.said[number] if one[0] == "lost"]
                del self.streams[number], self.said[number]


def _together(streams: Sequence[ProcessStream]) -> Iterator[tuple[str, bytes]]:
    """METAs with the sums of what several processes measured."""
    found: defaultdict[tuple[Any, ...], float] = defaultdict(float)
    spent: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0])
    own: defaultdict[str, float] = defaultdict(float)
    for stream in streams:
        for *place, seconds in stream.newest.get("sampled", {}).get("found", ()):
            found[tuple(place)] += seconds
        for name, seconds, calls in stream.newest.get("transforms", {}).get("spent", ()):
            spent[name][0] += seconds
            spent[name][1] += calls
        for name, value in stream.newest.get("own", {}).items():
            if name != "meta":
                own[name] += value
    if found:
        yield _meta("sampled", found=[[*place, seconds] for place, seconds in found.items()])
    if spent:
        yield _meta("transforms", spent=[[name, *sums] for name, sums in spent.items()])
    if own:
        yield _meta("own", **own)


def _meta(name: str, **fields: Any) -> tuple[str, bytes]:
    return name, json.dumps({"meta": name, **fields}).encode()


def fold(parts: Sequence[Path], target: Path, most_bytes: int) -> None:
    """Thin these files into one of about `most_bytes`, or more if it must.

    `target` may be one of them; the others stay. A whole run can be folded as well, to a few kilobytes for
    each minute: ``fold([run], small, 4096 * minutes)``. Raises `RunFileError` or `OSError`, and leaves
    everything as it was.
    """
    held = _Held(Detail(min(most_bytes >> 12, 1 << 14), min(most_bytes >> 15, 1 << 11), above=0))
    for part in parts:
        with part.open("rb") as file:
            head = file.read(f.HEADER.size)
            if len(head) == f.HEADER.size:
                for chunk in FileScan(file, check_header(part, head)):
                    held.add(chunk)
    names = [part.name for part in parts if part != target]
    while True:
        thin(held.streams.values(), held.detail)
        held.join_ended_workers()
        data = b"".join(_written(held, names))
        if len(data) <= most_bytes or held.detail.stretches <= _FEWEST_STRETCHES:
            break
        held.detail = Detail(held.detail.batches // 2, held.detail.stretches // 2, above=0)
    finished = target.with_name(target.name + ".folding")
    with finished.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    finished.replace(target)


def _written(held: _Held, names: Sequence[str]) -> Iterator[bytes]:
    yield f.header()
    yield meta_chunk(0, "folded", {"files": list(names)})
    for number, stream in held.streams.items():
        for payload in _last_words(held.said[number]):
            yield meta_chunk(number, *_taken_apart(payload))
        for kind, packed in sorted(stream.packed.items()):
            yield from rows_chunks(number, kind, b"".join(rows for _, rows in packed))


def _taken_apart(payload: bytes) -> tuple[str, dict[str, Any]]:
    fields = json.loads(payload)
    return fields.pop("meta"), fields


def _last_words(said: Sequence[tuple[str, bytes]]) -> Iterator[bytes]:
    """In order, without what was said again later."""
    last: dict[tuple[str, Any], int] = {}
    for place, (name, payload) in enumerate(said):
        if name in _REPEATED:
            last[name, None] = place
        elif name in _BY_LOADER:
            last[name, json.loads(payload)["loader"]] = place
        elif name == "system":
            last.setdefault((name, "first"), place)  # usage is told from the first to the last
            last[name, "last"] = place
        else:
            last[name, payload] = place
    sizes = [place for (name, _), place in last.items() if name == "sizes"]
    dropped = set(sizes) - set(sizes[:: max(len(sizes) // _MOST_SIZES, 1)])
    for place in sorted(set(last.values()) - dropped):
        yield said[place][1]
