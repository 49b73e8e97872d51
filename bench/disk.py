"""The limits of a disk: reads of several sizes, few and many in flight, into small and into huge pages.

Python threads wait for one O_DIRECT read each, at random offsets of a file of random bytes; unstarve's own
reader is not involved. The best of three turns counts, because a busy machine only makes them slower.

A row that does not grow with the reads in flight is limited by bandwidth; one whose GB/s grow with the size
of the reads, by operations per second. A difference between small and huge pages is the cost of the list of
memory pages, which a virtual disk's host may process page by page.

    python bench/disk.py [--folder DIR] [--size GB] [--seconds S]
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import os
import platform
import random
import tempfile
import threading
import time
from pathlib import Path

READ_KB = (4, 16, 64, 100, 256, 1024)
DEPTHS = (1, 2, 4, 8, 16, 32)
HUGE_PAGE = 2 << 20
TURNS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--folder", type=Path, help="a folder on the disk to measure [default: the temporary folder]"
    )
    parser.add_argument("--size", type=float, default=1.0, help="size of the file that is read, in GB")
    parser.add_argument("--seconds", type=float, default=0.15, help="for each turn")
    given = parser.parse_args()
    print(
        f"{platform.platform()}, {os.cpu_count()} cores, {time.strftime('%F')}: GB/s of random O_DIRECT reads"
    )
    print(f"{'reads in flight':>24}" + "".join(f"{depth:8}" for depth in DEPTHS))
    with tempfile.TemporaryDirectory(prefix="unstarve-bench-", dir=given.folder) as folder:
        path = written(Path(folder, "random.bin"), int(given.size * 1e9))
        for read_kb in READ_KB:
            for pages in ("small", "huge"):
                rates = [
                    max(rate(path, read_kb << 10, depth, pages, given.seconds) for _ in range(TURNS))
                    for depth in DEPTHS
                ]
                print(
                    f"{read_kb:6} KB, {pages:5} pages  " + "".join(f"{gb_s:8.2f}" for gb_s in rates),
                    flush=True,
                )


def written(path: Path, size_bytes: int) -> Path:
    """Write a file of random bytes and flush it to the disk."""
    with path.open("wb") as file:
        for _ in range(size_bytes >> 20):
            file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    return path


def rate(path: Path, read_bytes: int, depth: int, pages: str, seconds: float) -> float:
    """Return GB/s with this many threads."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    places = os.fstat(fd).st_size // read_bytes
    counts = [0] * depth
    began_s = time.perf_counter()

    def read(number: int) -> None:
        draw = random.Random(number)
        memory = memory_of(read_bytes, pages)
        while time.perf_counter() - began_s < seconds:
            counts[number] += os.preadv(fd, [memory], draw.randrange(places) * read_bytes)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(depth)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took_s = time.perf_counter() - began_s
    os.close(fd)
    return sum(counts) / took_s / 1e9


def memory_of(size_bytes: int, pages: str) -> memoryview:
    """Return memory to read into, of small or huge pages, aligned to a huge page."""
    mapped = mmap.mmap(-1, 2 * HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    mapped.madvise(mmap.MADV_HUGEPAGE if pages == "huge" else mmap.MADV_NOHUGEPAGE)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(mapped)) % HUGE_PAGE
    return memoryview(mapped)[start : start + size_bytes]


if __name__ == "__main__":
    main()
