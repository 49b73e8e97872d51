"""The accuracy and the cost of unstarve's GPU accounting; needs a CUDA device.

For each mix of loader and step, during the same stretch of training:

    wait      share of the time that the host spent in next()
    stall     share in which the GPU starved for data, by unstarve's events
    truth     the same by torch.profiler: its idle time (no kernel, copy or fill running) inside the waits
    idle      all of the profiler's idle time
    gaps      the part of it outside the waits in gaps shorter than 50 µs: launch gaps
    late      idle − truth − gaps: the host's code had given the GPU nothing to do
    unused    idle time as unstarve sees it: 1 − the utilization that the driver records
    unread    waits whose events had not fired at the end

``stall`` may differ from ``truth`` by 3 points. Then the cost: a step of 4 ms with and without the events, in
turns, once with the host ahead of the device and once with a synchronization in every step; a thread reads
the events meanwhile, as in a recorded training.

With ``--copies``, planted copies to the GPU are recorded instead: ``copy`` is the share of the time for
copies on training's stream by unstarve, ``truth`` the share in which torch.profiler saw a copy and no kernel.

    python bench/device.py [--quick] [--copies] [--limit SECONDS]
"""

from __future__ import annotations

import argparse
import itertools
import math
import platform
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from device_copies import tell_copies
from device_truth import Span, device_work, idle_gaps, idle_in_waits, merged, starved_ns
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, Dataset

from unstarve.collect.device.stalls import DeviceClock
from unstarve.intervals import turn_order
from unstarve.record import format as f

WIDTH = 4096
LAYER_MS = 0.33
"""Time of forward, backward and update of one layer below on an H200, from which step lengths are set."""
LAUNCH_GAP_NS = 50_000
POINTS = 0.03
OVERHEAD = 0.005

Batch = torch.Tensor
Take = Callable[[Callable[[], Batch]], Batch]
Step = Callable[[Batch], None]


class Sleepy(Dataset[torch.Tensor]):
    """Samples that take a given time."""

    def __init__(self, sample_s: float, floats: int = WIDTH) -> None:
        self._sample_s = sample_s
        self._floats = floats

    def __len__(self) -> int:
        return 10_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self._sample_s:
            time.sleep(self._sample_s)
        return torch.ones(self._floats)


@dataclass(frozen=True)
class Mix:
    name: str
    loader: Callable[[], Iterator[Batch]]
    step: Callable[[], Step]
    take: Callable[[], Take] = lambda: lambda following: following()
    own_stream: bool = False


def loading(sample_ms: float, workers: int, **options: Any) -> Callable[[], Iterator[Batch]]:
    floats = options.pop("floats", WIDTH)
    data = Sleepy(sample_ms / 1e3, floats)
    return lambda: iter(DataLoader(data, batch_size=8, num_workers=workers, **options))


def in_memory() -> Iterator[Batch]:
    return itertools.repeat(torch.ones(8, WIDTH))


def training(step_ms: float, after_s: float = 0.0, *, sync: bool = False) -> Callable[[], Step]:
    """A stack of linear layers and an optimizer; then, optionally, code without GPU work."""

    def make() -> Step:
        layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(round(step_ms / LAYER_MS))]
        model = torch.nn.Sequential(*layers).to("cuda", torch.bfloat16)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

        def step(batch: Batch) -> None:
            x = batch.to("cuda", non_blocking=True).flatten()[: 8 * WIDTH].view(8, WIDTH)
            loss = model(x.to(torch.bfloat16).repeat(256, 1)).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if sync:
                loss.item()
            if after_s:
                time.sleep(after_s)

        return step

    return make


def graphed(step_ms: float) -> Callable[[], Step]:
    """The whole step in one CUDA graph."""

    def make() -> Step:
        eager = training(step_ms)()
        held = torch.ones(8, WIDTH, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                eager(held)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            eager(held)

        def step(batch: Batch) -> None:
            held.copy_(batch, non_blocking=True)
            graph.replay()

        return step

    return make


def tiny_kernels() -> Step:
    """More launches than work: the host is late all the time."""
    x = torch.ones(1024, device="cuda")

    def step(batch: Batch) -> None:
        x.add_(batch.flatten()[:1024].to("cuda", non_blocking=True))
        for _ in range(400):
            x.mul_(0.5)

    return step


def prefetcher() -> Take:
    """The well-known prefetcher: fetch and copy on a side stream while training runs on the current one."""
    side = torch.cuda.Stream()

    def take(following: Callable[[], Batch]) -> Batch:
        with torch.cuda.stream(side):
            batch = following().to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        batch.record_stream(torch.cuda.current_stream())
        return batch

    return take


MIXES = [
    Mix("slow loader, long step", loading(2, 2), training(6)),
    Mix("slow loader, short step", loading(2, 2), training(2)),
    Mix("0 workers, long step", loading(1, 0), training(5)),
    Mix("fast loader", loading(0.2, 4), training(4)),
    Mix("data in memory", in_memory, training(4)),
    Mix("10 ms of host code a step", loading(0.2, 4), training(4, after_s=0.01)),
    Mix("slow loader and host code", loading(2, 2), training(2, after_s=0.004)),
    Mix("synchronizing every step", loading(1, 2), training(4, sync=True)),
    Mix("CUDA graph, slow loader", loading(2, 2), graphed(5)),
    Mix("large pinned copies", loading(0, 4, floats=1 << 20, pin_memory=True), training(4)),
    Mix("prefetcher on a side stream", loading(2, 2, pin_memory=True), training(6), prefetcher),
    Mix("training on its own stream", loading(2, 2), training(6), own_stream=True),
    Mix("tiny kernels, data in memory", in_memory, tiny_kernels),
]


@dataclass
class Measured:
    wall_ns: int
    waits: list[Span]
    busy: list[Span]
    """The profiler's: sorted, without overlap, inside the window; on the same clock as `waits`."""
    rows: list[tuple[int, Any]]

    def rows_of(self, kind: int) -> list[Any]:
        return [row for row_kind, row in self.rows if row_kind == kind]


def measure(mix: Mix, seconds: float) -> Measured:
    rows: list[tuple[int, Any]] = []
    clock = DeviceClock(lambda kind, now, row: rows.append((kind, row)), print)
    stream = torch.cuda.stream(torch.cuda.Stream()) if mix.own_stream else nullcontext()
    waits: list[Span] = []
    batches = mix.loader()

    def following() -> Batch:
        mark = clock.ask()
        ask = time.perf_counter_ns()
        batch = next(batches)
        got = time.perf_counter_ns()
        if mark is not None:
            clock.got(mark, (0, f.BATCH_WAIT, 0, len(waits)), ask, got)
        waits.append((ask, got))
        return batch

    def train(for_s: float) -> None:
        until = time.perf_counter() + for_s
        while time.perf_counter() < until:
            step(take(following))
        torch.cuda.synchronize()

    with stream:
        step, take = mix.step(), mix.take()
        train(1.0)
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            train(0.3)
            clock.read(time.perf_counter_ns())
            waits.clear()
            clock.read_gauges({torch.cuda.current_device()}, time.perf_counter_ns())
            del rows[:-1]  # a reading is about the time since the one before
            begin, offset = time.perf_counter_ns(), time.time_ns() - time.perf_counter_ns()
            train(seconds)
            end = time.perf_counter_ns()
            clock.close()
    rows = [(kind, row) for kind, row in rows if kind != f.STALL or row.ask_ns >= begin]
    busy = merged(device_work(profiler), begin + offset, end + offset)
    return Measured(end - begin, waits, [(a - offset, b - offset) for a, b in busy], rows)


def tell(mix: Mix, measured: Measured) -> tuple[str, float]:
    wall = measured.wall_ns
    gaps = idle_gaps(measured.busy)
    edges = wall - (measured.busy[-1][1] - measured.busy[0][0])
    outside = (b - a - in_waits for (a, b), in_waits in idle_in_waits(measured.busy, measured.waits))
    launch = sum(ns for ns in outside if ns < LAUNCH_GAP_NS)
    inside = starved_ns(measured.busy, measured.waits)
    stall = sum(row.stall_ns for row in measured.rows_of(f.STALL)) / wall
    idle = (sum(b - a for a, b in gaps) + edges) / wall
    read = [(row.at_ns, row.percent / 100) for row in measured.rows_of(f.GAUGE) if row.percent >= 0]
    busy = weighted([(share, b - a) for (a, _), (b, share) in itertools.pairwise(read)])
    wait = sum(b - a for a, b in measured.waits) / wall
    late = idle - (inside + launch) / wall
    shares = (wait, stall, inside / wall, idle, launch / wall, late, None if busy is None else 1 - busy)
    cells = "".join("       –" if share is None else f"{share:8.1%}" for share in shares)
    unread = len(measured.waits) - len(measured.rows_of(f.STALL))
    return f"{mix.name:32}{len(measured.waits):6}{cells}{unread:8}", abs(stall - inside / wall)


def weighted(pairs: list[tuple[float, int]]) -> float | None:
    total = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / total if total else None


def overhead(*, sync: bool, blocks: int, steps: int = 50) -> tuple[float, float, float]:
    """Return milliseconds per step without and with the clock, and the median paired ratio minus one."""
    step = training(4, sync=sync)()
    batch = torch.ones(8, WIDTH)
    clock = DeviceClock(lambda kind, now, row: None, print)
    enough = threading.Event()

    def look_on() -> None:  # as the stack sampler does
        while not enough.wait(0.1):
            clock.look_on(time.perf_counter_ns())

    beside = threading.Thread(target=look_on)
    beside.start()

    def bare() -> None:
        step(batch)

    def clocked() -> None:
        mark = clock.ask()
        now = time.perf_counter_ns()
        if mark is not None:
            clock.got(mark, (0, 0, 0, 0), now, now)
        step(batch)

    def block(turn: Callable[[], None]) -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            turn()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / steps * 1e3

    block(bare), block(clocked)
    pairs = []
    for number in range(blocks):
        took_ms = {step: block(step) for step in turn_order((clocked, bare), number)}
        pairs.append((took_ms[bare], took_ms[clocked]))
    enough.set()
    beside.join()
    clock.close()
    ratio = statistics.median(b / a for a, b in pairs) - 1
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs), ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter stretches, fewer repeats")
    parser.add_argument("--copies", action="store_true", help="planted copies instead of planted waits")
    parser.add_argument("--only", help="mixes whose name contains this")
    parser.add_argument("--limit", type=float, default=math.inf, metavar="S", help="begin nothing after that")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("bench/device.py: no CUDA device, nothing to measure")
        return
    until = time.monotonic() + arguments.limit
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {platform.python_version()}")
    if arguments.copies:
        tell_copies(arguments.only, until)
        return
    names = ("steps", "wait", "stall", "truth", "idle", "gaps", "late", "unused", "unread")
    print(f"\n{'':32}{names[0]:>6}" + "".join(f"{name:>8}" for name in names[1:]))
    worst = 0.0
    for mix in MIXES:
        if arguments.only and arguments.only not in mix.name:
            continue
        if time.monotonic() > until:
            print(f"{mix.name:32}not measured: the time is up", flush=True)
            continue
        line, off = tell(mix, measure(mix, 1.5 if arguments.quick else 3.0))
        worst = max(worst, off)
        print(line, flush=True)
    print(f"\nlargest difference between stall and truth: {worst * 100:.1f} points (bar: {POINTS * 100:g})")
    for sync in (False, True) if time.monotonic() < until else ():
        without, with_it, ratio = overhead(sync=sync, blocks=20 if arguments.quick else 40)
        kind = "synchronizing every step" if sync else "host ahead of the device"
        print(
            f"step of {without:.3f} ms, {kind}: {with_it:.3f} ms with the events, "
            f"{ratio:+.2%} (bar: {OVERHEAD:.1%})"
        )


if __name__ == "__main__":
    main()
