"""Import a large torch.profiler trace in a separate process: seconds and peak memory.

    python bench/import_trace.py [--megabytes 500]

The trace is written first: steps of a training with operators, launches, kernels, allocations and waits.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_OPERATORS_A_STEP = 400


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    asked.add_argument("--megabytes", type=int, default=500, help="size of the trace (default: 500)")
    megabytes = asked.parse_args().megabytes
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "large.pt.trace.json")
        write_trace(trace, megabytes * 1_000_000)
        begun = time.monotonic()
        unstarve = Path(sys.executable).with_name("unstarve")
        run = Path(folder, "large.unstarve")
        subprocess.run([unstarve, "import", "-o", run, "--json", Path(folder, "r.json"), trace], check=True)
        took_s = time.monotonic() - begun
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        print(f"{trace.stat().st_size / 1e6:.0f} MB: {took_s:.1f} s, peak {peak / 1e6:.0f} MB")


def write_trace(path: Path, size: int) -> None:
    """Write a trace of at least `size` bytes."""
    with path.open("w") as out:
        out.write('{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [\n')
        written = 0
        for event in _events():
            text = json.dumps(event)
            written += out.write(text)
            if written >= size:
                out.write("]}")
                return
            out.write(",\n")


def _events() -> Iterator[dict[str, Any]]:
    link, now, held = 0, 1.7e15, 0
    for step in range(10**9):
        begun = now
        yield _event(
            "user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", now, 3000
        )
        now += 3000
        for number in range(_OPERATORS_A_STEP):
            link += 1
            details = {
                "External id": link,
                "Sequence number": link,
                "Fwd thread id": 0,
                "Record function id": 0,
            }
            yield _event("cpu_op", f"aten::operator_{number % 40}", now, 20, details)
            yield _event("cuda_runtime", "cudaLaunchKernel", now + 5, 4, {"External id": link, "cbid": 211})
            launched = {"External id": link, "device": 0, "context": 1, "stream": 7, "correlation": link,
                        "grid": [64, 1, 1], "block": [128, 1, 1], "registers per thread": 90}  # fmt: skip
            yield _event("kernel", f"void kernel_{number % 60}<float, 4>(float*, int)", now + 9, 15, launched)
            change = 4096 if number < _OPERATORS_A_STEP // 2 else -4096
            held += change
            yield _event("cpu_instant_event", "[memory]", now + 2, 0, {
                "Total Reserved": 1 << 24, "Total Allocated": held, "Bytes": change, "Device Id": 0,
                "Device Type": 1, "Addr": 140737488355328 + link, "Ev Idx": link,
            }, phase="i")  # fmt: skip
            now += 21
        yield _event("user_annotation", f"ProfilerStep#{step}", begun, now - begun)


def _event(
    category: str, name: str, at_us: float, length_us: float, details: Any = None, phase: str = "X"
) -> dict[str, Any]:
    return {"ph": phase, "cat": category, "name": name, "pid": 1, "tid": 1, "ts": at_us, "dur": length_us,
            "args": details or {}}  # fmt: skip


if __name__ == "__main__":
    main()
