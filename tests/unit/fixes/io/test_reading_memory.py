"""Reading where memory is short."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from unstarve.native import native, why_not_native

pytestmark = pytest.mark.skipif(native() is None, reason=f"native reader: {why_not_native()}")

READS = """
import resource, sys
import numpy as np
from unstarve.fixes.io.reading import read_into

path, size_bytes = sys.argv[1], int(sys.argv[2])
requests = [(path, 0, size_bytes, i * size_bytes) for i in range(8)]
out = np.zeros(8 * size_bytes, np.uint8)
if not read_into(requests, out, direct=True, threads=4).used_uring:
    sys.exit("no queue")
with open("/proc/self/statm") as memory:
    in_use = int(memory.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (in_use + 100_000_000, resource.RLIM_INFINITY))
for _ in range(3):
    try:
        read_into(requests, out, direct=True, depth=2000, threads=4)  # bounce memory of a gigabyte
    except MemoryError:
        print("MemoryError")
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
out[:] = 0
read_into(requests, out, direct=True, threads=4)
print(out.tobytes() == open(path, "rb").read() * 8)
"""


def test_too_little_memory_is_an_error_and_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(os.urandom(600_000))
    command = [sys.executable, "-c", READS, str(path), "600000"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    if done.stderr == "no queue\n":
        pytest.skip("this kernel or this file system has no queue of direct reads")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["MemoryError"] * 3 + ["True"]
