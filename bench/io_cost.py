"""What `unstarve run --io` adds to a call: nanoseconds of open + close and of pread, with and without it.

    python bench/io_cost.py

The two ways run in turns, in separate processes; the fastest round of each counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from unstarve.launch.io_library import io_environment, why_not_io

_TURNS = 5
_TIMED = """
import os, sys, time
path, calls = sys.argv[1], 20_000
fd = os.open(path, os.O_RDONLY)

def fastest(call):
    rounds = []
    for _ in range(10):
        begun = time.perf_counter_ns()
        for _ in range(calls):
            call()
        rounds.append((time.perf_counter_ns() - begun) / calls)
    return min(rounds)

print(fastest(lambda: os.close(os.open(path, os.O_RDONLY))), fastest(lambda: os.pread(fd, 100, 0)))
"""


def main() -> None:
    if (why_not := why_not_io()) is not None:
        sys.exit(why_not)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data.bin")
        path.write_bytes(bytes(1000))
        ways = {"alone": {}, "counted": io_environment(folder)}
        found: dict[str, list[list[float]]] = {way: [] for way in ways}
        for _ in range(_TURNS):
            for way, more in ways.items():
                found[way].append(timed(path, more))
    for at, call in enumerate(("open + close", "pread")):
        alone, counted = (min(one[at] for one in found[way]) for way in ways)
        print(f"{call}: {alone:.0f} ns alone, {counted:.0f} ns counted: {counted - alone:.0f} ns more")


def timed(path: Path, more: dict[str, str]) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-c", _TIMED, str(path)],
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        check=True,
    )
    return [float(word) for word in done.stdout.split()]


if __name__ == "__main__":
    main()
