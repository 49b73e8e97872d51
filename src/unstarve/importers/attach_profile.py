"""The window of `unstarve run --profile`: its summary in the run, its trace with the workers' spans."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unstarve.errors import ProfileError
from unstarve.importers.summarize import profile_of
from unstarve.importers.torch_trace import read_torch_trace
from unstarve.importers.trace_events import TraceFile
from unstarve.model import Process, Run
from unstarve.record import format as f
from unstarve.record.run_file import parts_folder
from unstarve.record.writer import Writer

_TRACES = "*.trace.json"
_MARGIN_US = 1e6
"""Worker spans this long before and after the window are in the trace, too."""
_LEVEL = 5
_MERGED = ".trace.json.gz"


def keep_profile(run: Path) -> Path | None:
    """Add the first trace in the run's parts folder to the run; return where it was kept, None without one.

    Call it before the parts are folded into the run file.
    """
    parts = parts_folder(run)
    traces = sorted(parts.glob(_TRACES), key=lambda trace: trace.name.rpartition("-")[2])
    if not traces:
        return None
    writer = Writer(parts / f"profile{f.PART_SUFFIX}")
    try:
        profile = profile_of(read_torch_trace(traces[0], lambda done: None))
        writer.meta("profile", **dataclasses.asdict(profile))
    except ProfileError as error:
        writer.meta("lost", message=f"the profile could not be read: {error}")
    writer.close()
    kept = run.with_name(f"{run.name.removesuffix(f.SUFFIX)}.torch.trace.json")
    traces[0].replace(kept)
    return kept


def kept_trace(run: Path) -> Path | None:
    """The profiler's trace next to a run file; None without one."""
    trace = run.with_name(f"{run.name.removesuffix(f.SUFFIX)}{_MERGED}")
    return trace if trace.is_file() else None


def merge_spans(trace: Path, run: Run) -> Path:
    """Write the trace again, compressed and with the loader's spans in it; return the new file."""
    merged = trace.with_name(trace.name.replace(".torch.trace.json", _MERGED))
    source = TraceFile(trace, lambda done: None)
    first, last = float("inf"), float("-inf")
    with gzip.open(merged, "wt", encoding="utf-8", compresslevel=_LEVEL) as out:
        out.write('{"traceEvents": [\n')
        for event in source:
            if event.get("ph") == "X" and isinstance(event.get("ts"), (int, float)):
                first, last = min(first, event["ts"]), max(last, event["ts"])
            out.write(json.dumps(event) + ",\n")
        base_ns = source.header.get("baseTimeNanoseconds")
        base_ns = base_ns if isinstance(base_ns, int) else 0
        for event in _spans(run, base_ns):
            if first - _MARGIN_US <= event.get("ts", first) <= last + _MARGIN_US:
                out.write(json.dumps(event) + ",\n")
        out.write(json.dumps({"ph": "M", "name": "merged_by", "pid": 0, "args": {"name": "unstarve"}}) + "]")
        for name, value in source.header.items():
            out.write(f",\n{json.dumps(name)}: {json.dumps(value)}")
        out.write("}\n")
    trace.unlink()
    return merged


def _spans(run: Run, base_ns: int) -> Iterator[dict[str, Any]]:
    """What workers, pinning and hand-off did, on the trace's clock."""
    for process in run.processes:
        shift_ns = process.clock_offset_ns - base_ns
        if process.worker:
            name = f"DataLoader worker {process.pid}"
            yield {"ph": "M", "name": "process_name", "pid": process.pid, "args": {"name": name}}
        for begin, end, what, details in _events(process):
            yield {
                "ph": "X",
                "cat": "unstarve",
                "name": what,
                "pid": process.pid,
                "tid": "unstarve" if not process.worker else process.pid,
                "ts": (begin + shift_ns) / 1e3,
                "dur": (end - begin) / 1e3,
                "args": details,
            }


def _events(process: Process) -> Iterator[tuple[int, int, str, dict[str, Any]]]:
    for work in process.works:
        batch = {"batch": work.task}
        yield work.begin_ns, work.collate_ns, "fetch", batch
        yield work.collate_ns, work.done_ns, "collate", batch
    for sent in process.sents:
        yield sent.begin_ns, sent.end_ns, "send", {"batch": sent.task}
    for received in process.receipts:
        batch = {"batch": received.task}
        yield received.arrived_ns, received.ready_ns, "receive", batch
        if received.pinned_ns > received.ready_ns:
            yield received.ready_ns, received.pinned_ns, "pin", batch
    for taken in process.batches:
        yield taken.ask_ns, taken.got_ns, "wait", {"batch": taken.position, "epoch": taken.epoch}
        if taken.sampler_ns:
            yield taken.ask_ns, taken.ask_ns + taken.sampler_ns, "sampler", {"batch": taken.position}
