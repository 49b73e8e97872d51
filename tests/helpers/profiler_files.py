"""Small files as profilers write them, made in the test."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

MS = 1_000_000

_OLD = {"cpu_op": "Operator", "kernel": "Kernel", "gpu_memcpy": "Memcpy", "cuda_runtime": "Runtime",
        "user_annotation": "Operator"}  # fmt: skip


def event(category: str, name: str, at_ms: float, length_ms: float, **details: Any) -> dict[str, Any]:
    """One complete event of a trace."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": 1.7e15 + at_ms * 1e3,
        "dur": length_ms * 1e3,
        "args": details,
    }


def allocation(at_ms: float, change: int, kind: int = 1, **totals: int) -> dict[str, Any]:
    """A tensor is allocated, or freed with a negative `change`; `kind` is torch's device type."""
    details = {"Device Type": kind, "Device Id": 0 if kind else -1, "Bytes": change, "Addr": 1}
    told = {f"Total {name.capitalize()}": total for name, total in totals.items()}
    return {**event("cpu_instant_event", "[memory]", at_ms, 0), "ph": "i", "args": details | told}


def training_trace(
    steps: int = 6, *, wait_ms: float = 40, kernel_ms: float = 50, copy_ms: float = 5, old: bool = False
) -> dict[str, Any]:
    """A training on one GPU: a wait, a copy from pageable memory, then an operator with one kernel."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}]
    step_ms = wait_ms + copy_ms + kernel_ms
    for step in range(steps):
        at = step * step_ms
        work = {"device": 0, "stream": 7, "External id": 10 + step}
        events += [
            event("user_annotation", f"ProfilerStep#{step}", at, step_ms),
            event(
                "user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, wait_ms
            ),
            event("cpu_op", "aten::outer", at + wait_ms, 10, **{"External id": 5000 + step}),
            event("cpu_op", "aten::mm", at + wait_ms + 2, 4, **{"External id": 10 + step}),
            event(
                "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", at + wait_ms, copy_ms, device=0, bytes=1000
            ),
            event("kernel", "void gemm<float>(…)", at + wait_ms + copy_ms, kernel_ms, **work),
            event("python_function", "train.py(3): main", at, step_ms),
            allocation(at + wait_ms + 3, 1 << 20, allocated=3 << 20, reserved=4 << 20),
            allocation(at + wait_ms + 9, -(1 << 20), allocated=2 << 20, reserved=4 << 20),
        ]
    if old:
        for one in events:
            if one.get("cat") in _OLD:
                one["cat"] = _OLD[one["cat"]]
    return {"schemaVersion": 1, "traceEvents": events, "traceName": "a.json"}


def write_trace(path: Path, trace: Any) -> Path:
    """Write it as JSON, compressed if the name says so."""
    text = json.dumps(trace).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def write_nsys(
    path: Path,
    *,
    loader: bool = True,
    steps: int = 6,
    tables: tuple[str, ...] = (),
    ranges: tuple[tuple[str, int, int], ...] = (),
) -> Path:
    """An export with a GPU that mostly copies; `tables` are left out, as empty ones are.

    `ranges` are NVTX ranges of every step: name, beginning and end in ms.
    """
    made = {
        "StringIds": ("id INTEGER, value TEXT", [(1, "gemm"), (2, "cudaLaunchKernel"), (3, "read")]),
        "META_DATA_EXPORT": ("name TEXT, value TEXT", [("EXPORT_PRODUCT_VERSION", "2026.2.1")]),
        "CUPTI_ACTIVITY_KIND_KERNEL": (
            "start INTEGER, end INTEGER, deviceId INTEGER, shortName INTEGER, globalPid INTEGER, "
            "correlationId INTEGER",
            [((s * 100 + 90) * MS, (s * 100 + 95) * MS, 0, 1, 7 << 24, s) for s in range(steps)],
        ),
        "CUPTI_ACTIVITY_KIND_MEMCPY": (
            "start INTEGER, end INTEGER, deviceId INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER",
            [((s * 100 + 30) * MS, (s * 100 + 90) * MS, 0, 1 << 20, 1, 1) for s in range(steps)],
        ),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (
            "start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER, correlationId INTEGER",
            [((s * 100 + 30) * MS, (s * 100 + 99) * MS, 7 << 24, 2, s) for s in range(steps)],
        ),
        "NVTX_EVENTS": (
            "start INTEGER, end INTEGER, globalTid INTEGER, text TEXT, textId INTEGER",
            [
                ((s * 100 + begin) * MS, (s * 100 + end) * MS, 7 << 24, name, None)
                for s in range(steps)
                for name, begin, end in ((("unstarve.data", 0, 20),) if loader else ()) + ranges
            ],
        ),
        "OSRT_API": (
            "start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER",
            [(s * MS, (s + 1) * MS, 8 << 24, 3) for s in range(steps)],
        ),
    }
    with closing(sqlite3.connect(path)) as database, database:
        for name, (columns, rows) in made.items():
            if name not in tables:
                database.execute(f"CREATE TABLE {name} ({columns})")
                database.executemany(
                    f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns.split(',')))})", rows
                )
    return path
