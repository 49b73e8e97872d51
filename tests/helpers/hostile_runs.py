"""Run files that no training wrote: mutated ones, with checksums that hold, and ones built to cost time."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from run_files import slow_loading_run, write_run
from unstarve import api
from unstarve.analyze.comparison import compare
from unstarve.analyze.live_training import live_of
from unstarve.errors import UnstarveError
from unstarve.model import Phase, Process
from unstarve.present.exports import report_json as json_view
from unstarve.present.exports.markdown import markdown
from unstarve.present.exports.perfetto import trace
from unstarve.present.exports.prometheus import exposition, report_metrics
from unstarve.present.page.html_page import comparison_page, report_page
from unstarve.present.terminal.live_view import Look, live_view, pages
from unstarve.present.terminal.report_card import print_comparison, print_report
from unstarve.present.terminal.whatif_table import print_whatif
from unstarve.record import format as f
from unstarve.record.chunks import Chunk, Scan, chunk
from unstarve.record.follow import Follower

_RANGES = {"H": (0, 2**16), "I": (0, 2**32), "i": (-(2**31), 2**31), "Q": (0, 2**64), "q": (-(2**63), 2**63)}
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, 10**9, 10**400, -(10**9), 0.5, -1e308, 1e308,
    float("nan"), float("inf"), "", "x", "\ud800", "\x1b[31m[bold]</script>", "9" * 5000, [], {}, [[]],
    [None], {"a": None}, ["x"] * 50, list(range(2000)), {"": {"": []}},
)  # fmt: skip


def mutate(data: bytes, rng: random.Random) -> bytes:
    """A run file with damage to its bytes, or to its content with valid checksums."""
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        data = rng.choice(_MUTATIONS)(data, rng)
    return data


def chunks_of(data: bytes) -> list[Chunk]:
    """The whole chunks of a run file."""
    return list(Scan(data, f.HEADER.unpack_from(data)[1], f.HEADER.size)) if len(data) > f.HEADER.size else []


def run_of_chunks(chunks: list[Chunk]) -> bytes:
    """A run file of these chunks."""
    return f.header() + b"".join(chunk(c.stream, c.kind, c.payload, c.row_size) for c in chunks)


def nested_headers(size: int, version: int = f.VERSION) -> bytes:
    """Headers of chunks, each of which claims all that follows."""
    step, row = 64, f.ROW_KINDS[f.PULSE].size
    count = size // step
    lengths = (max(left * step - f.CHUNK.size, row) // row * row for left in range(count, 0, -1))
    chunks = (f.CHUNK.pack(f.SYNC, 0, f.PULSE, row, length, 1).ljust(step, b"\0") for length in lengths)
    return f.HEADER.pack(f.MAGIC, version, 0, 0) + b"".join(chunks)


def streams_of_one_row(size: int, version: int = f.VERSION) -> bytes:
    """Each chunk is another process's, and as small as can be."""
    row = f.ROW_KINDS[f.EPOCH_SAMPLER].pack(0, 0, 0, 0)
    pieces = [f.HEADER.pack(f.MAGIC, version, 0, 0)]
    for stream in range(size // (f.CHUNK.size + len(row))):
        head = f.CHUNK_HEAD.pack(stream, f.EPOCH_SAMPLER, len(row), len(row))
        crc = zlib.crc32(row, 0 if version == 1 else zlib.crc32(head))
        pieces.append(f.SYNC + head + struct.pack("<I", crc) + row)
    return b"".join(pieces)


def write_rich_run(path: Path, *, kind: str = "run") -> Path:
    """A run file with every kind of record: two ranks on a device, workers, pulses, samples of stacks."""
    run = slow_loading_run(36, workers=2)
    main, *crew = run.processes
    if kind == "ideal":
        batches = tuple(
            b._replace(block=1 + i // 6, phase=Phase.REPLAY if i // 6 % 2 else Phase.REAL)
            for i, b in enumerate(main.batches)
        )
        main = dataclasses.replace(main, batches=batches)
    ranks = [dataclasses.replace(main, pid=100 + rank, rank=rank) for rank in range(2)]
    write_run(path, dataclasses.replace(run, kind=kind, processes=(*ranks, *crew)))
    chunks = chunks_of(path.read_bytes())
    streams = {json.loads(c.payload).get("pid"): c.stream for c in chunks if b'"process"' in c.payload}
    for pid, stream in streams.items():
        chunks[-1:-1] = _more_chunks(stream, main, is_worker=pid >= 200)
    path.write_bytes(run_of_chunks(chunks))
    return path


def _more_chunks(stream: int, main: Process, *, is_worker: bool) -> list[Chunk]:
    usage = {"process_cpu_s": 1.0, "machine_cpu_s": 2.0, "machine_cores": 4}
    end_ns = main.batches[-1].got_ns
    metas: list[dict[str, Any]] = [
        {"meta": "sampled", "cpu_s": 0.1, "found": [
            ["fetch", "load", "data.py", 3, False, False, 1.5],
            ["step", "log", "train.py", 9, True, False, 0.7],
            ["collate", "stack", "data.py", 5, True, True, 0.1]]},
        {"meta": "own", "steps": 9, "step_cpu_s": 2e-4, "fetches": 9, "fetch_cpu_s": 3e-4, "rest_cpu_s": 0.1},
        {"meta": "transforms", "spent": [["Resize", 0.5, 40]]},
        {"meta": "system", "cores": 4, "quota_cores": 2.5, "filesystems": {"nfs4": 7, "ext4": 1},
         "usage": usage | {"at_ns": 10**9}, "grouped": True, "missing": [], "counts_delay": False},
        {"meta": "system", "cores": 4, "usage": usage | {"at_ns": end_ns, "process_cpu_s": 2.0}},
        {"meta": "lost", "message": "something"},
    ]  # fmt: skip
    pulses = [(1 + i % 4, 0, at, i * 10**6, -1, i * 4096, 10**8, 10**7, 10**6, 10**9)
              for i, at in enumerate(range(10**9, end_ns, 10**8))]  # fmt: skip
    rows: dict[int, list[tuple[Any, ...]]] = {f.PULSE: pulses}
    if is_worker:
        rows[f.HELPED] = [(task, 0, 10**6, f.NO_LOADER) for task in range(9)]
    else:
        metas.append({"meta": "device", "name": "NVIDIA X", "rank": None})
        rows[f.STALL] = [
            (b.loader, f.BATCH_WAIT, b.epoch, b.position, device, 0, b.ask_ns, b.got_ns, b.wait_ns // 2)
            for b in main.batches
            for device in range(2)
        ]
        rows[f.COPY] = [
            (b.loader, f.BESIDE, b.epoch, b.position, 0, 1, 10**6, b.got_ns, b.got_ns + 10**6, 10**5, 10**5)
            for b in main.batches
        ]
        rows[f.GAUGE] = [(0, 0, at, 50, 10**9, 10**10) for at in range(10**9, end_ns, 10**8)]
        rows[f.ENGINES] = [(0, 0, at, 400_000, 10**6, 10**5, 40) for at in range(10**9, end_ns, 10**8)]
        rows[f.EPOCH_SAMPLER] = [(0, 0, 0, 10**6)]
        rows[f.EPOCH_NO_GRAD] = [(0, 0, 0)]
        rows[f.BACKWARD] = [(0, batch.got_ns + 1000) for batch in main.batches]
    packed = {kind: b"".join(f.ROW_KINDS[kind].pack(*row) for row in some) for kind, some in rows.items()}
    return [
        *(Chunk(stream, f.META, 0, json.dumps(meta).encode()) for meta in metas),
        *(Chunk(stream, kind, f.ROW_KINDS[kind].size, payload) for kind, payload in packed.items()),
    ]


def look_at(path: Path, other: Path | None = None) -> None:
    """All that unstarve can do with a run file; only an `UnstarveError` may say that it cannot be done."""
    for look in (_report, _follow, lambda run: _compare(run, other or run)):
        with contextlib.suppress(UnstarveError):
            look(path)


def _report(path: Path) -> None:
    run = api.load_run(path)
    diagnosis, views = api.diagnose(run), api.views_of(run)
    json.dumps(json_view.report(diagnosis), allow_nan=False)
    markdown(diagnosis).encode()
    report_page(diagnosis, views).encode()
    print_report(diagnosis, _console())
    if views is not None:
        json.dumps(trace(diagnosis, views), allow_nan=False)
    exposition(report_metrics(diagnosis, api.series_of(run))).encode()
    if diagnosis.whatif is not None:
        json.dumps(json_view.whatif(diagnosis.whatif, "run"), allow_nan=False)
        print_whatif(diagnosis.whatif, _console())


def _compare(path: Path, other: Path) -> None:
    runs = [api.load_run(one) for one in (other, path)]
    compared = compare(*runs, ("throughput<-5%", "wait_share>+3pt", "step_p95>200"))
    json.dumps(json_view.comparison(compared), allow_nan=False)
    comparison_page(compared, *(api.views_of(run) for run in runs)).encode()
    print_comparison(compared, _console())


def _follow(path: Path) -> None:
    live = live_of(Follower(path).read())
    json.dumps(json_view.live(live), allow_nan=False)
    for page in (None, *range(min(len(pages(live)), 3))):
        _console().print(live_view(live, Look(page=page), 80, 40))


def _console() -> Console:
    return Console(file=io.StringIO(), width=80)


def _flip_bytes(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 20)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(f.HEADER.size, len(data) + 1)]


def _move_bytes(data: bytes, rng: random.Random) -> bytes:
    begin, to = sorted(rng.randrange(f.HEADER.size, len(data) + 1) for _ in range(2))
    length = rng.randint(1, 300)
    return data[:begin] + data[to : to + length] + data[begin + rng.choice((0, length)) :]


def _change_rows(data: bytes, rng: random.Random) -> bytes:
    chunks = chunks_of(data)
    rows = [i for i, c in enumerate(chunks) if c.kind in f.ROW_KINDS]
    for place in rng.sample(rows, min(len(rows), rng.choice((1, 5, 50)))):
        chunks[place] = _with_changed_rows(chunks[place], rng)
    return run_of_chunks(chunks)


def _with_changed_rows(one: Chunk, rng: random.Random) -> Chunk:
    layout, letters = f.ROW_KINDS[one.kind], f.letters(one.kind).replace("32s", "s")
    field, same = rng.randrange(len(letters)), rng.random() < 0.5
    value = _row_value(letters[field], rng)
    payload = bytearray(one.payload)
    for at in range(0, len(payload), one.row_size):
        if rng.random() < 0.5:
            row = list(layout.unpack_from(payload, at))
            row[field] = value if same else _row_value(letters[field], rng)
            layout.pack_into(payload, at, *row)
    return one._replace(payload=bytes(payload))


def _row_value(letter: str, rng: random.Random) -> int | bytes:
    if letter == "s":
        return rng.randbytes(32)
    least, end = _RANGES[letter]
    limits = (least, least + 1, end - 1, end // 2, 0, 1, 2, 10**6, 10**9, 2**62, 2**45)
    return min(max(rng.choice((*limits, rng.randrange(least, end))), least), end - 1)


def _change_meta(data: bytes, rng: random.Random) -> bytes:
    chunks = chunks_of(data)
    metas = [i for i, c in enumerate(chunks) if c.kind == f.META]
    for place in rng.sample(metas, min(len(metas), rng.choice((1, 1, 3)))):
        try:
            said = json.loads(chunks[place].payload)
        except (ValueError, RecursionError):
            continue
        _change_inside(said, rng)
        payload = rng.choice((_nested, _spoilt, json.dumps))(said).encode(errors="surrogatepass")
        chunks[place] = chunks[place]._replace(payload=payload)
    return run_of_chunks(chunks)


def _nested(said: Any) -> str:
    return json.dumps({"meta": "lost", "message": said})[:-1] + ', "more": ' + "[" * 9999 + "]" * 9999 + "}"


def _spoilt(said: Any) -> str:
    return json.dumps(said).replace('"', '\\ud800"', 1)


def _change_inside(said: Any, rng: random.Random) -> None:
    while isinstance(said, (dict, list)) and said:
        key = rng.choice(list(said) if isinstance(said, dict) else range(len(said)))
        if isinstance(said[key], (dict, list)) and said[key] and rng.random() < 0.7:
            said = said[key]
        elif rng.random() < 0.15:
            del said[key]
            return
        else:
            said[key] = rng.choice(_VALUES)
            return


def _change_order(data: bytes, rng: random.Random) -> bytes:
    chunks = chunks_of(data)
    if not chunks:
        return data
    for _ in range(rng.choice((1, 3, 20))):
        a, b = rng.randrange(len(chunks)), rng.randrange(len(chunks))
        action = rng.randrange(4)
        if action == 0:
            chunks[a], chunks[b] = chunks[b], chunks[a]
        elif action == 1:
            chunks.insert(a, chunks[b])
        elif action == 2 and len(chunks) > 1:
            del chunks[a]
        else:
            chunks[a] = chunks[a]._replace(stream=chunks[b].stream)
    return run_of_chunks(chunks)


_MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flip_bytes, _cut, _move_bytes, _change_rows, _change_rows, _change_rows, _change_meta, _change_meta,
    _change_meta, _change_order,
)  # fmt: skip
