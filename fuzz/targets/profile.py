"""Files of other profilers: imported, diagnosed and shown."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from random import Random

from fuzz.changes import NUMBERS, bytes_changed, deep_json
from profiler_files import training_trace, write_nsys
from unstarve.api import diagnose, load_run, views_of
from unstarve.importers.import_file import import_file
from unstarve.present.exports.markdown import markdown
from unstarve.present.page.html_page import report_page

_PIECES = b"traceEvents{}[]:\x00\xff"


@functools.cache
def seeds() -> list[bytes]:
    traces = [json.dumps(training_trace(steps=3, old=old)).encode() for old in (False, True)]
    with tempfile.TemporaryDirectory() as folder:
        exports = [
            write_nsys(Path(folder, f"{loader}.sqlite"), loader=loader, steps=3).read_bytes()
            for loader in (False, True)
        ]
    return traces + exports


def hostile() -> dict[str, bytes]:
    """Traces made to keep a reader busy."""
    many = b",".join([b'{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":1}'] * 20_000)
    return {
        "deep lists": b'{"traceEvents":' + deep_json(100_000) + b"}",
        "a long number": b'[{"ph":"X","cat":"kernel","name":"a","ts":' + b"9" * 5000 + b',"dur":1}]',
        "one moment, many operators": b"[" + many + b"]",
        "an endless string": b'{"traceEvents": [{"name": "' + b"x" * 1_000_000,
    }


def changed(data: bytes, random: Random) -> bytes:
    """Another number in a trace, another byte in an export."""
    if data[:1] != b"{" or random.random() < 0.3:
        return bytes_changed(data, _PIECES, random)
    try:
        trace = json.loads(data)
        events = [event for event in trace["traceEvents"] if isinstance(event, dict)]
    except (ValueError, TypeError, KeyError):
        events = []
    if not events:
        return bytes_changed(data, _PIECES, random)
    for _ in range(random.randrange(1, 4)):
        event = random.choice(events)
        target = event
        if random.random() < 0.3 and isinstance(event.get("args"), dict) and event["args"]:
            target = event["args"]
        names = list(target) if target is not event else ["ts", "dur", "cat", "name", "args", "tid"]
        target[random.choice(names)] = random.choice([*NUMBERS, "kernel", None, [], {}])
    return json.dumps(trace).encode()


def run(data: bytes, folder: Path) -> None:
    """Import it, and look at the result in every way."""
    file, run_file = folder / "profile", folder / "profile.unstarve"
    file.write_bytes(data)
    import_file(file, run_file, lambda done: None, force=True)
    recorded = load_run(run_file)
    found = diagnose(recorded)
    markdown(found)
    report_page(found, views_of(recorded))
