"""Memory besides the data: each way to load in a process of its own.

Measured as proportional set size, which counts what processes share once, over the training process and its
workers. The way is run on little data first, so that what it imports is not counted.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from unstarve.benchmark.entries import PartPlan
from unstarve.benchmark.plan import QUICK, Sizes
from unstarve.benchmark.timing import seed_all
from unstarve.model import Extra

_LOOKS = 20
_LONGEST_S = 120


def pss_bytes(pid: int) -> int:
    """Proportional set size of a process; 0 if it is gone.

    ``/proc/PID/smaps_rollup`` has a line such as ``Pss:               41205 kB``.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def extra_memory(part: PartPlan, entry_name: str, sizes: Sizes, folder: Path) -> Extra | None:
    """Measure one way in a fresh process; None where that does not work."""
    order = json.dumps([part.name, entry_name, asdict(sizes), str(folder)])
    command = [sys.executable, "-m", "unstarve.benchmark.memory", order]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_LONGEST_S)
    except subprocess.SubprocessError:
        return None
    return Extra(**json.loads(done.stdout.splitlines()[-1]))


def measure(part: PartPlan, entry_name: str, sizes: Sizes, folder: Path) -> Extra:
    """Measure one way in this process, which should do nothing else."""
    entry = next(entry for entry in part.entries if entry.name == entry_name)
    little = folder / "little"
    little.mkdir(exist_ok=True)
    _highest(entry.make(part.prepare(QUICK, little)))
    data = part.prepare(sizes, folder)
    gc.collect()
    before = pss_bytes(psutil.Process().pid)
    return Extra(before, *_highest(entry.make(data)))


def _highest(loader: Any) -> tuple[int, int]:
    """Return the bytes of this process and of its workers when both together were highest in an epoch."""
    seed_all(0)
    me = psutil.Process()
    batches = len(loader) if hasattr(loader, "__len__") else _LOOKS
    every = max(1, batches // _LOOKS)
    highest = (0, 0)
    for at, _ in enumerate(loader):
        if at % every == 0:
            workers = sum(pss_bytes(child.pid) for child in me.children(recursive=True))
            highest = max(highest, (pss_bytes(me.pid), workers), key=sum)
    return highest


def _main() -> None:
    from unstarve.benchmark.parts import PARTS

    name, entry_name, sizes, folder = json.loads(sys.argv[1])
    part = next(part for part in PARTS if part.name == name)
    extra = measure(part, entry_name, Sizes(**sizes), Path(folder))
    print(json.dumps(asdict(extra)))


if __name__ == "__main__":
    _main()
