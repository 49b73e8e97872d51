"""Traces of hostile runs: `unstarve trace` writes JSON that other programs can read, whatever is in a run."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any, NoReturn

from fuzz.targets import run_file
from unstarve import api
from unstarve.present.exports.perfetto import trace


def seeds() -> list[bytes]:
    return run_file.seeds()


def hostile() -> dict[str, bytes]:
    return {}  # those of run files are run as such


def changed(data: bytes, random: Random) -> bytes:
    return run_file.changed(data, random)


def run(data: bytes, folder: Path) -> None:
    file = folder / "input.unstarve"
    file.write_bytes(data)
    recorded = api.load_run(file)
    text = json.dumps(trace(api.diagnose(recorded), api.views_of(recorded)))
    text.encode()
    for event in json.loads(text, parse_constant=_no_number)["traceEvents"]:
        _check(event)


def _check(event: dict[str, Any]) -> None:
    assert isinstance(event["ph"], str), event
    assert type(event["pid"]) is int, event
    assert type(event["tid"]) is int, event
    for field in ("ts", "dur"):
        assert isinstance(event.get(field, 0), int | float), event


def _no_number(text: str) -> NoReturn:
    raise AssertionError(f"{text} is no JSON")
