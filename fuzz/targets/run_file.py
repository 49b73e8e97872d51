"""Run files: read, followed, analysed and shown in every way that a user has."""

from __future__ import annotations

import functools
import io
import json
import tempfile
import zlib
from pathlib import Path
from random import Random
from socket import gethostname
from typing import Any

from rich.console import Console

from fakes import FakeTraining, run_of
from fuzz.changes import deep_json, json_text
from hostile_runs import (
    chunks_of,
    look_at,
    mutate,
    nested_headers,
    run_of_chunks,
    streams_of_one_row,
    write_rich_run,
)
from run_files import slow_loading_run, write_run
from unstarve import api
from unstarve.present.exports.markdown import markdown
from unstarve.present.page.html_page import report_page
from unstarve.present.terminal.report_card import print_report
from unstarve.record import format as f
from unstarve.record.chunks import Chunk
from unstarve.record.fold import fold
from unstarve.record.run_reader import read_run
from unstarve.record.stretches import Detail

_LARGE_BYTES = 1 << 19


@functools.cache
def seeds() -> list[bytes]:
    plain = FakeTraining()
    plain.begin("train")
    for _ in range(30):
        plain.take(0.01)
        plain.spend(0.02)
    plain.end("train")
    validated = FakeTraining()
    validated.train([(0.01, 0.02)] * 30)
    validated.validate([(0.02, 0.01)] * 30)
    runs = (
        slow_loading_run(40, workers=2),
        slow_loading_run(25, workers=1),
        run_of(plain.process()),
        run_of(validated.process()),
    )
    with tempfile.TemporaryDirectory() as folder:
        files = [write_run(Path(folder, f"{n}.unstarve"), run) for n, run in enumerate(runs)]
        files += [write_rich_run(Path(folder, f"{kind}.unstarve"), kind=kind) for kind in ("run", "ideal")]
        long = write_run(Path(folder, "long.unstarve"), slow_loading_run(300, workers=2))
        files.append(Path(folder, "folded.unstarve"))
        fold([long], files[-1], 1 << 15)
        return [_plain(file.read_bytes()) for file in files]


def hostile() -> dict[str, bytes]:
    """Files made to keep a reader busy, and messages of the wrong shape in frames that are right."""
    head, plain = f.header(), chunks_of(seeds()[0])
    messages = {
        "a list": b"[]", "a number": b"1", "no JSON": b"{", "no UTF-8": b'{"meta":"\xff"}', "no name": b"{}",
        "deep lists": deep_json(100_000), "a long number": b'{"meta":"launch","pid":' + b"9" * 10_000 + b"}",
        "a name that is a list": b'{"meta":[]}', "a launch alone": b'{"meta":"launch"}',
    }  # fmt: skip
    for pid in (-1, 0, 2**70, "x", None, 0.5):
        launch = {"command": ["x"], "kind": "run", "started_at": 1.7e9, "pid": pid, "host": gethostname()}
        messages[f"a launch by process {pid}"] = json_text({"meta": "launch"} | launch)
    return {
        f"a message: {name}": run_of_chunks([Chunk(0, f.META, 0, text), *plain])
        for name, text in messages.items()
    } | {
        "headers inside of each other": nested_headers(1 << 20),
        "sync marks and nothing else": head + f.SYNC * 200_000,
        "chunks of no bytes": head + b"".join(_framed(Chunk(n, f.META, 0, b"")) for n in range(20_000)),
        "a stream for every chunk": streams_of_one_row(1 << 20),
        "rows of one byte": run_of_chunks(plain) + _framed(Chunk(1, f.BATCH, 1, bytes(5000))),
        "a last row that breaks off": run_of_chunks(plain)
        + _framed(Chunk(plain[-2].stream, f.BATCH, 500, bytes(1201))),
        "rows of nothing but ones": run_of_chunks([_ones(piece) for piece in plain]),
    }


def changed(data: bytes, random: Random) -> bytes:
    """Messages, rows, frames and bytes changed; mostly the checksums are right again."""
    return mutate(data, random) if len(data) > f.HEADER.size else data


def run(data: bytes, folder: Path) -> None:
    file = folder / "input.unstarve"
    file.write_bytes(data)
    look_at(file)
    if len(data) < _LARGE_BYTES:  # larger ones are about the time that reading takes
        api.diagnose(read_run(file, Detail(32, 8, above=0)))
        fold([file], folder / "folded.unstarve", 1 << 15)
    recorded = api.load_run(file)
    diagnosis = api.diagnose(recorded)
    pages = report_page(diagnosis, api.views_of(recorded)) + markdown(diagnosis)
    assert "<img src=x" not in pages, "a name of the file became a part of the page"
    assert "\x1b" not in _printed(diagnosis), "a name of the file reached the terminal with its escapes"


def _framed(one: Chunk) -> bytes:
    """A chunk in a frame whose checksum is right, whatever it says: our own writer makes no such thing."""
    head = f.CHUNK_HEAD.pack(one.stream, one.kind, one.row_size, len(one.payload))
    crc = zlib.crc32(one.payload, zlib.crc32(head))
    return f.SYNC + head + crc.to_bytes(4, "little") + one.payload


def _plain(data: bytes) -> bytes:
    """A run file without what differs each time, and without the room reserved for a last word."""
    streams: dict[int, int] = {}
    chunks = []
    for one in chunks_of(data):
        message = json.loads(one.payload) if one.kind == f.META else {}
        if message.get("meta") == "reserve":
            continue
        payload = one.payload
        if message.get("meta") == "launch":
            payload = json_text(message | {"started_at": 1.7e9, "pid": 99, "host": "here"})
        chunks.append(one._replace(stream=streams.setdefault(one.stream, len(streams)), payload=payload))
    return run_of_chunks(chunks)


def _ones(one: Chunk) -> Chunk:
    return one if one.kind == f.META else one._replace(payload=b"\xff" * len(one.payload))


def _printed(diagnosis: Any) -> str:
    text = io.StringIO()
    print_report(diagnosis, Console(file=text, width=100, no_color=True))
    return text.getvalue()
