"""A small discrete-event simulation of torch's DataLoader: who works on which batch, when, on which core.

Workers, their sending threads and the training thread take turns as in torch's own loop::

    training thread   ask → take messages until the wanted batch is there → give out the next index → step
    worker            next index → blocked, disk, CPU → hand the batch to its sending thread → next index
    sending thread    pickle → message in the queue, first come first served

CPU work shares the cores: everyone who wants one gets the same part of it, other processes included. Waiting
shares nothing, so it scales past the cores. A disk serves all its readers at once, each more slowly. Without
workers the training thread does everything in line.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from unstarve.predict.demand import NO_COMPETITION, BatchDemand, Competition
from unstarve.predict.machine_times import TYPICAL

_UNBLOCKED, _READ, _MADE, _PICKLED, _ARRIVED, _UNPACKED = range(6)
_TAKEN, _COMPUTED, _STEPPED, _PINNED, _BEGUN, _FREE = range(6, 12)
"""What has just ended, in the order of the handlers."""
_BORN, _WOKEN = 0, 1
_LATE = 1
_NEVER = math.inf


class LoaderSetup(NamedTuple):
    """A loader's settings and the machine it runs on."""

    workers: int
    prefetch: int
    in_order: bool
    pinned: bool
    cores: float
    competition: Competition = NO_COMPETITION
    step_threads: float = 1.0
    """Threads that a step keeps busy while the training thread computes."""
    index_delay_s: float = TYPICAL.index_delay_s
    """From giving an index to an idle worker until it begins."""
    disk_power: float = 1.0
    """`n` reads at once run at ``n ** disk_power`` times the speed of one, up to `disk_depth` reads."""
    disk_depth: float = math.inf
    remote_limit: float = math.inf
    """Workers that can be blocked at once without slowing each other down; beyond, as `remote_power` says."""
    remote_power: float = 1.0


class WorkerStart(NamedTuple):
    """Beginning an epoch."""

    worker_s: float
    """Training thread, per worker created."""
    boot_s: float
    """Worker, CPU, before its first batch."""


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """When batches were asked for and delivered; the clock starts with ``iter()``."""

    ask_s: list[float]
    got_s: list[float]
    lost_s: list[float]
    """Part of each wait in which the accelerator was idle; without an accelerator, the wait itself."""
    slowdown: float
    """Duration of all CPU work, relative to having a core to itself."""


def simulate(
    batches: Sequence[BatchDemand], count: int, setup: LoaderSetup, start: WorkerStart | None = None
) -> SimulatedRun:
    """Train on `count` batches, cycling through `batches`.

    `start` begins an epoch; without it the loader has been running for a while.
    """
    if setup.workers == 0:
        return _in_line(batches, count, setup)
    return _Loader(batches, setup).run(count, start)


def _in_line(batches: Sequence[BatchDemand], count: int, setup: LoaderSetup) -> SimulatedRun:
    """Without workers, making a batch and the step take turns: they never compete for a core."""
    slow = 1 / setup.competition.speed(1.0, setup.cores)
    slow_step = 1 / setup.competition.speed(setup.step_threads, setup.cores)
    ask: list[float] = []
    got: list[float] = []
    lost: list[float] = []
    now = device_s = 0.0
    for number in range(count):
        w = batches[number % len(batches)]
        ask.append(now)
        cpu_s = w.cpu_s + w.collate_s + w.index_s + w.take_s + w.pin_s
        now += cpu_s * slow + w.blocked_s + w.late_s + w.disk_s
        got.append(now)
        lost.append(max(now - max(ask[-1], device_s), 0.0))
        before_s, device_s = device_s, max(now, device_s) + w.device_s
        now = max(now + w.step_s * slow_step + w.step_delay_s, before_s)
    return SimulatedRun(ask, got, lost, slow)


class _Shared:
    """Cores, a disk or a server: all users progress at the same rate."""

    __slots__ = ("_speed", "done_s", "heap", "rate", "users")

    def __init__(self, speed: Callable[[float], float]) -> None:
        self._speed = speed
        self.users = 0.0
        self.rate = 1.0
        self.done_s = 0.0
        """Work done by a user present from the beginning."""
        self.heap: list[tuple[float, int, int, int, float]] = []

    def enter(self, need_s: float, kind: int, who: int, batch: int, weight: float = 1.0) -> None:
        heappush(self.heap, (self.done_s + need_s, kind, who, batch, weight))
        self.users += weight
        self.rate = self._speed(self.users)

    def leave(self) -> tuple[int, int, int]:
        _, kind, who, batch, weight = heappop(self.heap)
        self.users = self.users - weight if self.heap else 0.0
        if self.users:
            self.rate = self._speed(self.users)
        return kind, who, batch

    def next_s(self) -> float:
        """Seconds until the next user is done."""
        return (self.heap[0][0] - self.done_s) / self.rate if self.heap else _NEVER


class _Loader:
    """The state of a simulated loader with workers."""

    def __init__(self, batches: Sequence[BatchDemand], setup: LoaderSetup) -> None:
        cores, competition, power, depth = setup.cores, setup.competition, setup.disk_power, setup.disk_depth
        self.batches = batches
        self.setup = setup
        self.cpu = _Shared(lambda users: competition.speed(users, cores))
        self.disk = _Shared(lambda users: min(users, depth) ** power / users)
        limit, slack = setup.remote_limit, setup.remote_power - 1
        self.remote = _Shared(lambda users: max(users / limit, 1.0) ** slack)
        self.delays: list[tuple[float, int, int, int]] = []
        self.now = self.boot_s = 0.0
        self.crew = [_Worker() for _ in range(setup.workers)]
        self.worker_of: dict[int, _Worker] = {}
        self.next_worker = self.next_task = 0
        self.messages: deque[int] = deque()
        self.pinned: deque[int] = deque()
        self.held: set[int] = set()
        self.pinning = self.waits = False
        self.wanted = 0
        self.device_s = 0.0
        """When the accelerator finishes what it was given."""
        self.ask_s: list[float] = []
        self.got_s: list[float] = []
        self.lost_s: list[float] = []
        self.handlers = (
            self._unblocked, self._read, self._made, self._pickled, self._arrived, self._unpacked,
            self._taken, self._computed, self._stepped, self._pin_done, self._begun, self._free,
        )  # fmt: skip

    def run(self, count: int, start: WorkerStart | None) -> SimulatedRun:
        """Run until `count` batches are delivered."""
        self._begin(start)
        cpu, disk, remote, delays = self.cpu, self.disk, self.remote, self.delays
        handlers, got_s = self.handlers, self.got_s
        wanted_s = used_s = 0.0
        while len(got_s) < count:
            cpu_s, disk_s, remote_s = cpu.next_s(), disk.next_s(), remote.next_s()
            delay_s = delays[0][0] - self.now if delays else _NEVER
            passed_s = max(min(cpu_s, disk_s, remote_s, delay_s), 0.0)
            wanted_s += passed_s * cpu.users
            used_s += passed_s * cpu.users * cpu.rate
            cpu.done_s += passed_s * cpu.rate
            disk.done_s += passed_s * disk.rate
            remote.done_s += passed_s * remote.rate
            self.now += passed_s
            if delay_s <= passed_s:
                _, kind, who, batch = heappop(delays)
            else:
                first = cpu if cpu_s <= passed_s else disk if disk_s <= passed_s else remote
                kind, who, batch = first.leave()
            handlers[kind](who, batch)
        return SimulatedRun(self.ask_s, self.got_s, self.lost_s, wanted_s / used_s if used_s else 1.0)

    def _begin(self, start: WorkerStart | None) -> None:
        first = self._demand(0)
        making_s = first.blocked_s + first.late_s + first.disk_s + first.cpu_s + first.collate_s
        for number in range(self.setup.workers):
            if start is None:
                # Staggered, as workers are after a while.
                self._after(making_s * number / self.setup.workers, _BEGUN, number, _WOKEN)
            else:
                self.now += start.worker_s
                self.boot_s = start.boot_s
                self._after(0.0, _BEGUN, number, _BORN)
        for _ in range(self.setup.workers * self.setup.prefetch):
            self.now += self._demand(self.next_task).index_s
            self._give_out()
        self._ask()

    def _demand(self, batch: int) -> BatchDemand:
        return self.batches[batch % len(self.batches)]

    def _after(self, delay_s: float, kind: int, who: int, batch: int) -> None:
        heappush(self.delays, (self.now + delay_s, kind, who, batch))

    # The training thread.

    def _give_out(self) -> None:
        """Give the next index to the worker whose turn it is, as torch's `_try_put_index` does."""
        setup, number = self.setup, self.next_worker
        if not setup.in_order:
            for _ in range(setup.workers):
                if self.crew[number].given < setup.prefetch:
                    break
                number = (number + 1) % setup.workers
        self.next_worker = (number + 1) % setup.workers
        task, worker = self.next_task, self.crew[number]
        self.next_task += 1
        self.worker_of[task] = worker
        worker.given += 1
        worker.tasks.append(task)
        if worker.idle:
            worker.idle = False
            self._after(self.setup.index_delay_s, _BEGUN, number, _WOKEN)

    def _ask(self) -> None:
        self.ask_s.append(self.now)
        self.waits = True
        self._look()

    def _look(self) -> None:
        """Let the waiting training thread take a batch or message, if there is one."""
        if self.setup.in_order and self.wanted in self.held:
            self.held.discard(self.wanted)
            self._deliver(self.wanted)
        elif self.setup.pinned:
            if self.pinned:
                self._have(self.pinned.popleft())
        elif self.messages:
            self.waits = False
            batch = self.messages.popleft()
            work = self._demand(batch)
            self.cpu.enter(work.take_s + work.index_s, _UNPACKED, 0, batch)

    def _unpacked(self, who: int, batch: int) -> None:
        """The CPU part is done; the worker must answer too, and takes longer while it computes."""
        work, worker = self._demand(batch), self.worker_of[batch]
        if worker.computes and work.busy_delay_s:
            worker.asked_for = batch
            self._after(work.take_delay_s + work.busy_delay_s / self.cpu.rate, _TAKEN, _LATE, batch)
        else:
            self._after(work.take_delay_s, _TAKEN, 0, batch)

    def _taken(self, who: int, batch: int) -> None:
        if who == _LATE:
            worker = self.worker_of.get(batch)
            if worker is None or worker.asked_for != batch:
                return  # the worker finished computing earlier and answered then
            worker.asked_for = None
        if self.setup.pinned:
            self.cpu.enter(self._demand(batch).pin_s, _PINNED, 0, batch)
        else:
            self._have(batch)

    def _have(self, batch: int) -> None:
        if self.setup.in_order and batch != self.wanted:
            self.held.add(batch)
            self.waits = True
            self._look()
        else:
            self._deliver(batch)

    def _deliver(self, batch: int) -> None:
        self.waits = False
        self.wanted += 1
        self.worker_of.pop(batch).given -= 1
        self._give_out()
        self.got_s.append(self.now)
        self.lost_s.append(max(self.now - max(self.ask_s[-1], self.device_s), 0.0))
        self.cpu.enter(self._demand(batch).step_s, _COMPUTED, 0, batch, self.setup.step_threads)

    def _computed(self, who: int, batch: int) -> None:
        self._after(self._demand(batch).step_delay_s, _STEPPED, 0, batch)

    def _stepped(self, who: int, batch: int) -> None:
        """The training thread may be at most one step ahead of the accelerator."""
        before_s = self.device_s
        self.device_s = max(self.got_s[-1], before_s) + self._demand(batch).device_s
        if before_s > self.now:
            self._after(before_s - self.now, _FREE, 0, batch)
        else:
            self._ask()

    def _free(self, who: int, batch: int) -> None:
        self._ask()

    # The pin thread.

    def _pin_next(self) -> None:
        if self.messages and not self.pinning:
            self.pinning = True
            batch = self.messages.popleft()
            self.cpu.enter(self._demand(batch).take_s, _UNPACKED, 0, batch)

    def _pin_done(self, who: int, batch: int) -> None:
        self.pinning = False
        self.pinned.append(batch)
        if self.waits:
            self._look()
        self._pin_next()

    # The workers.

    def _begun(self, number: int, why: int) -> None:
        """A worker was created and must boot, or is ready for its next index."""
        if why == _BORN and self.boot_s:
            self.cpu.enter(self.boot_s, _BEGUN, number, _WOKEN)
        else:
            self._next_task(number)

    def _next_task(self, number: int) -> None:
        worker = self.crew[number]
        if worker.tasks:
            batch = worker.tasks.popleft()
            work = self._demand(batch)
            blocked_s = work.blocked_s + work.late_s
            if self.setup.remote_power < 1:
                self.remote.enter(blocked_s, _UNBLOCKED, number, batch)
            else:
                self._after(blocked_s, _UNBLOCKED, number, batch)
        else:
            worker.idle = True

    def _unblocked(self, number: int, batch: int) -> None:
        need_s = self._demand(batch).disk_s
        if need_s > 0:
            self.disk.enter(need_s, _READ, number, batch)
        else:
            self._read(number, batch)

    def _read(self, number: int, batch: int) -> None:
        work = self._demand(batch)
        self.crew[number].computes = True
        self.cpu.enter(work.cpu_s + work.collate_s, _MADE, number, batch)

    def _made(self, number: int, batch: int) -> None:
        worker = self.crew[number]
        worker.computes = False
        if worker.asked_for is not None:
            self._after(0.0, _TAKEN, _LATE, worker.asked_for)
        worker.outbox.append(batch)
        if not worker.sends:
            self._send(number)
        self._next_task(number)

    def _send(self, number: int) -> None:
        worker = self.crew[number]
        worker.sends = True
        batch = worker.outbox.popleft()
        self.cpu.enter(self._demand(batch).send_s, _PICKLED, number, batch)

    def _pickled(self, number: int, batch: int) -> None:
        self._after(self._demand(batch).send_delay_s, _ARRIVED, number, batch)

    def _arrived(self, number: int, batch: int) -> None:
        worker = self.crew[number]
        worker.sends = False
        if worker.outbox:
            self._send(number)
        self.messages.append(batch)
        if self.setup.pinned:
            self._pin_next()
        elif self.waits:
            self._look()


class _Worker:
    """A worker process and the thread that sends its batches."""

    __slots__ = ("asked_for", "computes", "given", "idle", "outbox", "sends", "tasks")

    def __init__(self) -> None:
        self.tasks: deque[int] = deque()
        self.given = 0
        """Tasks whose batches are not delivered yet."""
        self.idle = False
        self.computes = False
        self.outbox: deque[int] = deque()
        self.sends = False
        self.asked_for: int | None = None
        """The batch that the training process is taking from it and must wait for."""
