"""How long it takes to merge and report a large job, and how much memory: from 8 to 1,024 ranks.

The run files are made up, eight ranks to a node, each with 10,000 steps at 10 steps/s, written chunk by chunk
as a training writes them. One rank waits for its data in every step. Files are merged as they are, and folded
on their nodes before (``unstarve merge --fold``). Memory is the largest sum of proportional set sizes of all
processes at once. CPU time counts all of them, too; other work on the machine hardly changes it. At most one
job is on the disk at a time: 1,024 ranks take 3 GB.

    python bench/ranks.py [--ranks N…] [--steps N]
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from accuracy import children_cpu_s

from unstarve.record import format as f
from unstarve.record.chunks import chunk
from unstarve.record.writer import meta_chunk

PER_NODE = 8
STRAGGLER = 5
STEP_NS = 100_000_000
LATE_NS = 40_000_000
SLOT_STREAM = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 256, 1024], metavar="N")
    parser.add_argument("--steps", type=int, default=10_000, metavar="N")
    arguments = parser.parse_args()
    print(
        f"Python {platform.python_version()}, {len(os.sched_getaffinity(0))} cores, {arguments.steps} steps\n"
    )
    print(f"{'':8}{'full':^46}{'folded on its node':^46}")
    head = f"{'files':>9}{'merge, report':>16}{'CPU':>8}{'memory':>10}"
    print(f"{'ranks':8}{head}   {head}")
    bodies = {late: body(arguments.steps, late=late) for late in (False, True)}
    for ranks in arguments.ranks:
        with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
            full = [node(Path(folder), number, bodies) for number in range(ranks // PER_NODE)]
            print(f"{ranks:<8}{merged(full)}", end="", flush=True)
            small = [folded(path) for path in full[: min(len(full), 2)]]
            # Nodes without the straggler are alike: the second one stands for the others.
            small += [alike(small[1], number) for number in range(2, len(full))]
            print(f"   {merged(small)}", flush=True)


def body(steps: int, *, late: bool) -> Callable[[int], bytes]:
    """What one rank records in its steps, for any number of its stream."""

    def rows(stream: int) -> Iterator[bytes]:
        begin = f.EpochBeginRow(0, 0, 0, 0, begin_ns=STEP_NS, ready_ns=STEP_NS)
        yield framed(stream, f.EPOCH_BEGIN, begin)
        for step in range(steps):
            ask_ns = STEP_NS * (step + 1)
            got_ns = ask_ns + (LATE_NS if late else LATE_NS // 40)
            blocked_ns = STEP_NS // 50 + (0 if late else LATE_NS)
            unknown = dict.fromkeys(("task", "ready", "wait_queued_ns", "step_queued_ns"), -1)
            times = (ask_ns, got_ns, 0, 0)
            batch = f.BatchRow(
                0, 0, 0, step, 0, 32, 1 << 20, *times, sampler_ns=0, wait_cpu_ns=0, step_cpu_ns=0, **unknown
            )
            yield framed(stream, f.BATCH, batch)
            back_ns, end_ns = got_ns + STEP_NS // 5, ask_ns + STEP_NS - STEP_NS // 10
            yield framed(stream, f.BACKWARD, f.BackwardRow(0, back_ns))
            met = f.MeetingRow(1, back_ns, end_ns, 0, blocked_ns, 0, end_ns, ask_ns + STEP_NS)
            yield framed(stream, f.MEETING, met)

    return lambda stream: b"".join(rows(stream))


def framed(stream: int, kind: int, row: tuple[int | bytes, ...]) -> bytes:
    return chunk(stream, kind, f.ROW_KINDS[kind].pack(*row), f.ROW_KINDS[kind].size)


_made: dict[tuple[int, bool], bytes] = {}


def node(folder: Path, number: int, bodies: dict[bool, Callable[[int], bytes]]) -> Path:
    """The run file of one node."""
    path = folder / f"node{number}.unstarve"
    with path.open("wb") as file:
        launch = {
            "command": ["train.py"],
            "kind": "run",
            "started_at": 0.0,
            "pid": 1,
            "host": f"node{number}",
        }
        file.write(f.header() + meta_chunk(0, "launch", launch))
        for slot in range(PER_NODE):
            rank, stream = number * PER_NODE + slot, SLOT_STREAM + slot
            who = {
                "pid": 100 + slot, "host": f"node{number}", "rank": rank, "worker": False,
                "versions": {}, "start_ns": 0, "offset_ns": number,
            }  # fmt: skip
            file.write(meta_chunk(stream, "process", who))
            loader = {"id": 0, "name": "train", "where": "train.py:1", "kind": "DataLoader", "config": {}}
            file.write(meta_chunk(stream, "loader", loader))
            key = (slot, rank == STRAGGLER)
            if key not in _made:
                _made[key] = bodies[key[1]](stream)
            file.write(_made[key])
            file.write(meta_chunk(stream, "end", {"end_ns": 1 << 50, "stopped": None}))
        file.write(meta_chunk(0, "result", {"exit_code": 0, "error": None}))
    return path


def folded(path: Path) -> Path:
    """The same file, folded."""
    small = path.with_suffix(".small.unstarve")
    command = [sys.executable, "-m", "unstarve", "merge", "--fold", str(path), "-o", str(small)]
    subprocess.run(command, check=True, capture_output=True)
    return small


def alike(path: Path, number: int) -> Path:
    """The folded file of another node."""
    from unstarve.record.chunks import Scan
    from unstarve.record.metas import meta_of

    data, other = path.read_bytes(), path.with_name(f"node{number}.small.unstarve")
    with other.open("wb") as file:
        file.write(f.header())
        for one in Scan(data, f.VERSION, f.HEADER.size):
            payload = one.payload
            meta = meta_of(payload) if one.kind == f.META else None
            if meta is not None and meta["meta"] == "process":
                rank = number * PER_NODE + meta["rank"] % PER_NODE
                fields = {name: value for name, value in meta.items() if name != "meta"}
                file.write(
                    meta_chunk(one.stream, "process", fields | {"rank": rank, "host": f"node{number}"})
                )
            else:
                file.write(chunk(one.stream, one.kind, payload, one.row_size))
    return other


def merged(paths: list[Path]) -> str:
    """Merge and report; say how long that took, and the memory that it needed."""
    out = paths[0].with_name("merged.unstarve")
    size = sum(path.stat().st_size for path in paths)
    begin_s, cpu_s = time.perf_counter(), children_cpu_s()
    with watched() as peak:
        for words in (["merge", "-f", *map(str, paths), "-o", str(out)], ["report", str(out)]):
            done = subprocess.run(
                [sys.executable, "-m", "unstarve", *words], check=True, capture_output=True, text=True
            )
    took_s = time.perf_counter() - begin_s
    assert f"Rank {STRAGGLER} came last" in " ".join(done.stdout.replace("│", " ").split()), done.stdout
    return f"{size / 1e6:6.0f} MB{took_s:14.1f} s{children_cpu_s() - cpu_s:6.1f} s{peak[0] / 1e6:7.0f} MB"


@contextmanager
def watched() -> Iterator[list[int]]:
    """The largest memory of all child processes together, in bytes, looked at ten times a second."""
    peak, over = [0], threading.Event()

    def look() -> None:
        me = psutil.Process()
        while not over.wait(0.1):
            total = 0
            for child in me.children(recursive=True):
                try:
                    total += child.memory_full_info().pss
                except (psutil.Error, OSError):
                    continue
            peak[0] = max(peak[0], total)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


if __name__ == "__main__":
    main()
