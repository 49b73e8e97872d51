"""The cost of watching: CPU time of `unstarve top` over wall time, while a run is being written.

    python bench/live.py [--seconds 20] [--workers 8] [--interval S] [--steps-per-s 20 200 2000]

The run is synthetic: this script writes the events that a training with this many steps per second and its
workers would write, batch by batch. Start-up (Python and its imports) is paid once and shown separately. The
bar is 1 % of a core.
"""

from __future__ import annotations

import argparse
import os
import platform
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pexpect
import psutil

from unstarve.record import format as f
from unstarve.record.run_file import claim, discard, parts_folder
from unstarve.record.writer import Writer

MS = 1_000_000
FETCH_MS = 20
FIRST_LOOKS_S = 3.0
"""By then, imports and the longer first read are done."""


class MadeUpRun:
    """Writes the events of a synthetic training until it is stopped."""

    def __init__(self, path: Path, workers: int, steps_per_s: float) -> None:
        claim(path, ["train.py"], "run")
        self._path = path
        self._steps_per_s = steps_per_s
        self._main = self._writer("main.part", pid=os.getpid(), worker=False)
        config = {"num_workers": workers, "prefetch_factor": 2, "batch_size": 32}
        self._main.meta("loader", id=0, name="train", where="train.py:3", kind="DataLoader", config=config)
        self._main.meta("crew", loader=0, epoch=0, pids=list(range(1, workers + 1)))
        self._workers = [self._writer(f"{n}.part", pid=n, worker=True) for n in range(1, workers + 1)]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _writer(self, name: str, **who: Any) -> Writer:
        writer = Writer(parts_folder(self._path) / name)
        now = time.perf_counter_ns()
        writer.meta(
            "process",
            **who, host=socket.gethostname(), rank=None, versions={},
            start_ns=now, offset_ns=time.time_ns() - now,
        )  # fmt: skip
        return writer

    def _write(self) -> None:
        begin, step, next_pulse = time.monotonic(), 0, 0.0
        while not self._ended.wait(0.05):
            elapsed = time.monotonic() - begin
            now = time.perf_counter_ns()
            for number in range(step, int(elapsed * self._steps_per_s)):
                self._step(number, now)
            step = int(elapsed * self._steps_per_s)
            if elapsed >= next_pulse:
                next_pulse = elapsed + 1
                for writer in (self._main, *self._workers):
                    writer.row(f.PULSE, now, (2, 0, now, now, 0, 0, 10**9, 10**8, 10**7, 10**10))
            for writer in (self._main, *self._workers):
                writer.flush(now)

    def _step(self, number: int, now: int) -> None:
        wait, fetch = round(0.6e9 / self._steps_per_s), FETCH_MS * MS
        inside = (number, 1, 1000, 2000, 0, 3000, 0)
        self._main.row(f.BATCH, now, (0, 0, 0, number, 0, 32, 4096, now - wait, now, 9000, 0, *inside))
        self._main.row(f.RECEIVED, now, (0, 0, 0, number, now - 3000, now - 1000, now - 1000))
        worker = self._workers[number % len(self._workers)]
        times = (now - fetch, now - fetch, now - MS, now)
        costs = (fetch // 3, MS, 0, 10**5, 10**5, -1, 0, 5, MS, 0, 0, 17, 10**6, 32)
        worker.row(f.WORK, now, (f.NO_LOADER, 0, 0, number, 32, *times, *costs))
        worker.row(f.SENT, now, (number, 0, now, now, now + MS, 5 * 10**5))

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        for writer in (self._main, *self._workers):
            writer.close()
        discard(self._path)


def cost_of_top(path: Path, seconds: float, interval: float | None) -> tuple[float, float]:
    """Return the CPU seconds of starting up, and per second afterwards."""
    command = ["top", str(path), *([] if interval is None else ["--interval", str(interval)])]
    terminal = pexpect.spawn("unstarve", command, dimensions=(40, 100), timeout=60)
    terminal.expect("throughput")
    process = psutil.Process(terminal.pid)
    _drain(terminal, FIRST_LOOKS_S)
    before, began = process.cpu_times(), time.monotonic()
    _drain(terminal, seconds)
    after, ended = process.cpu_times(), time.monotonic()
    terminal.send("q")
    terminal.expect(pexpect.EOF)
    terminal.close()
    spent = after.user + after.system - before.user - before.system
    return before.user + before.system, spent / (ended - began)


def _drain(terminal: Any, seconds: float) -> None:
    """Read the output, as a terminal does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            terminal.read_nonblocking(1 << 16, timeout=0.2)
        except pexpect.TIMEOUT:
            continue


def main() -> None:
    parser = argparse.ArgumentParser(description="The cost of `unstarve top`.")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--interval", type=float, help="as of `unstarve top`")
    parser.add_argument("--steps-per-s", type=float, nargs="+", default=[20, 200, 2000])
    options = parser.parse_args()
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {time.strftime('%Y-%m-%d')}"
    )
    print(f"{options.workers} workers, {options.seconds:g} s of watching\n")
    print(f"{'steps/s':>8}  {'CPU of a core':>13}  {'starting up':>11}")
    for steps_per_s in options.steps_per_s:
        with tempfile.TemporaryDirectory(prefix="unstarve-bench-") as folder:
            run = MadeUpRun(Path(folder) / "run.unstarve", options.workers, steps_per_s)
            try:
                starting_s, share = cost_of_top(
                    Path(folder) / "run.unstarve", options.seconds, options.interval
                )
            finally:
                run.end()
        print(f"{steps_per_s:8g}  {share:13.2%}  {starting_s:9.2f} s")


if __name__ == "__main__":
    main()
