"""Scenario: other settings for a recorded loader, and the pace at which its batches would then come."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Self

from unstarve.model import Scenario
from unstarve.predict.demand import BatchDemand, Competition, LoaderDemand
from unstarve.predict.moved_batches import USUAL_TENSORS, in_line, in_workers, resized
from unstarve.predict.recorded_run import EpochCosts
from unstarve.predict.simulate import LoaderSetup, SimulatedRun, WorkerStart, simulate

_STOCK_PREFETCH = 2
_MOST_AHEAD = 512
"""Batches simulated ahead of training: a queue longer than there are different batches changes nothing."""
_LEAST_PREFETCH = 4
"""Prefetch depth that is simulated for any number of workers."""
_SHORTEST_S = 1e-9
_SETTLED = 5
"""Batches after every worker's first that are not counted either."""
_MOST_SIMULATED = 120
"""Batches of an epoch that are simulated; a longer one continues as in their second half."""
_FEWEST_SIMULATED = 40
_VISIBLE_QUEUE = 1.1
"""Slowdown that is more than wake-up delays: the cores are contended."""
_SHARED_COPY_BYTES = 1 << 18
"""From here on torch copies with several threads."""
_SPIN_POWER = 4.0
_TRIES = 6
IDLE_CORES = 0.15
"""Less foreign work than this is the system's own."""

USUAL_DISK_POWER, USUAL_DISK_DEPTH = 0.4, 16.0
USUAL_COUPLING = 0.6


@dataclass(frozen=True, slots=True)
class FullScenario:
    """A `Scenario` with every blank filled in from the recording."""

    workers: int
    prefetch: int
    in_order: bool
    persistent: bool
    pinned: bool
    batch_size: int | None
    cores: float
    competition: Competition
    foreign: float
    """Share of other processes' work that is left."""
    left: Mapping[str, float]
    evened: float

    def eases(self, now: FullScenario) -> bool:
        """It only takes work or waiting away from `now`, which cannot slow training down."""
        return (
            (self.workers, self.batch_size, self.pinned) == (now.workers, now.batch_size, now.pinned)
            and self.prefetch >= now.prefetch
            and self.in_order <= now.in_order
            and self.persistent >= now.persistent
            and self.cores >= now.cores
            and self.foreign <= now.foreign
            and all(share <= 1 for share in self.left.values())
        )

    def frees_cores(self, now: FullScenario) -> bool:
        """The step may run faster than it did, because less competes with it for the cores."""
        less = any(self.left.get(stage, 1.0) < 1 for stage in ("cpu", "collate", "handoff"))
        return less or self.workers < now.workers or self.foreign < 1 or self.cores > now.cores

    def size_ratio(self, demand: LoaderDemand) -> float:
        """Samples per batch, relative to the recorded loader."""
        recorded = demand.config.get("batch_size")
        return self.batch_size / recorded if self.batch_size and recorded else 1.0


@dataclass(frozen=True, slots=True)
class Draw:
    """One draw of what is uncertain: which batches come, and how far the model's constants are off."""

    batches: tuple[BatchDemand, ...]
    disk_power: float = USUAL_DISK_POWER
    disk_depth: float = USUAL_DISK_DEPTH
    remote_power: float = 1.0
    """Like `disk_power`, for blocked workers beyond the recorded number."""
    cpu: float = 1.0
    """This and the following are factors that apply in any setting but the recorded one."""
    step: float = 1.0
    handoff: float = 1.0
    start: float = 1.0
    foreign: float = 1.0
    step_power: float = 1.0
    """A step on a batch `r` times as large takes ``r ** step_power`` times as long."""
    coupling: float = USUAL_COUPLING
    """A step of several threads beside `n` times as many busy threads as cores takes ``n ** coupling`` times
    as long as its share of the cores explains: its threads wait for the slowest of them."""

    def as_recorded(self) -> Self:
        """The same batches in the recorded setting, where nothing else is uncertain."""
        return dataclasses.replace(self, cpu=1.0, step=1.0, handoff=1.0, start=1.0, foreign=1.0)


@dataclass(frozen=True, slots=True)
class SimulatedPace:
    """Simulated speed of training."""

    period_s: float
    """Per batch, starts of epochs included where there were several."""
    wait_share: float
    slowdown: float
    """Duration of all CPU work, relative to having a core to itself."""


def fill_in(demand: LoaderDemand, scenario: Scenario) -> FullScenario:
    """The scenario, with the recorded value wherever it says nothing."""
    config, machine = demand.config, demand.machine
    prefetch = config.get("prefetch_factor")
    size = config.get("batch_size")
    workers = demand.workers if scenario.workers is None else scenario.workers
    return FullScenario(
        workers=workers,
        prefetch=(scenario.prefetch or prefetch or _STOCK_PREFETCH) if workers else _STOCK_PREFETCH,
        in_order=config.get("in_order") is not False if scenario.in_order is None else scenario.in_order,
        persistent=bool(
            config.get("persistent_workers") if scenario.persistent is None else scenario.persistent
        ),
        pinned=demand.pinned,
        batch_size=scenario.batch_size or (size if isinstance(size, int) else None),
        cores=scenario.cores or machine.cores,
        competition=_remaining_competition(demand.competition, machine.cores, scenario),
        foreign=scenario.foreign,
        left=dict(scenario.left),
        evened=scenario.evened,
    )


def pace_of(demand: LoaderDemand, full: FullScenario, draw: Draw) -> SimulatedPace:
    """Simulate the draw's batches in such a loader."""
    batches, setup = batches_in(demand, full, draw), setup_of(demand, full, draw)
    if demand.epochs is None:
        return _steady(batches, setup)
    return _by_epochs(demand.epochs, demand, full, draw, batches, setup)


def setup_of(demand: LoaderDemand, full: FullScenario, draw: Draw) -> LoaderSetup:
    """The settings and the machine to simulate."""
    return LoaderSetup(
        workers=full.workers,
        prefetch=min(full.prefetch, max(_MOST_AHEAD // max(full.workers, 1), _LEAST_PREFETCH)),
        in_order=full.in_order,
        pinned=full.pinned and full.workers > 0,
        cores=full.cores,
        competition=full.competition._replace(threads=full.competition.threads * draw.foreign),
        step_threads=demand.machine.step_threads,
        index_delay_s=demand.machine.costs.index_delay_s,
        disk_power=draw.disk_power,
        disk_depth=draw.disk_depth,
        remote_limit=max(demand.workers, 1) if draw.remote_power < 1 else math.inf,
        remote_power=draw.remote_power,
    )


def with_competition(demand: LoaderDemand, draw: Draw) -> LoaderDemand:
    """The same with the competition for cores, inferred from foreign CPU use and queueing."""
    machine, used = demand.machine, demand.machine.foreign
    if machine.slowdown < _VISIBLE_QUEUE:  # others, if any, left enough cores
        satisfied = Competition(used or 0.0, max(machine.cores - (used or 0.0), 0.0), machine.grouped)
        return dataclasses.replace(demand, competition=satisfied)
    if used is not None and used < IDLE_CORES:
        return demand  # the queue is our own workers'
    low, high = 0.0, machine.slowdown * machine.cores
    for _ in range(_TRIES):
        middle = (low + high) / 2
        crowded = dataclasses.replace(demand, competition=Competition(middle, 0.0, machine.grouped))
        tried = pace_of(crowded, fill_in(crowded, Scenario()), draw.as_recorded())
        fewer = tried.slowdown > machine.slowdown or tried.period_s > demand.period_s
        low, high = (low, middle) if fewer else (middle, high)
    return dataclasses.replace(demand, competition=Competition(low, 0.0, machine.grouped))


def _remaining_competition(recorded: Competition, recorded_cores: float, scenario: Scenario) -> Competition:
    """The competition that is left; on more cores it takes no more than it took of the recorded ones."""
    taken = (
        max(recorded_cores - recorded.spare_cores, 0.0) * scenario.foreign if recorded.spare_cores else 0.0
    )
    cores = scenario.cores or recorded_cores
    return recorded._replace(
        threads=recorded.threads * scenario.foreign, spare_cores=max(cores - taken, 0.0) if taken else 0.0
    )


def batches_in(demand: LoaderDemand, full: FullScenario, draw: Draw) -> Sequence[BatchDemand]:
    """The demand of the draw's batches in such a loader."""
    nbytes, ratio = demand.nbytes or 0.0, full.size_ratio(demand)
    tensors = demand.tensors or USUAL_TENSORS
    cost = demand.machine.costs
    alone = min(demand.readers, draw.disk_depth) ** draw.disk_power / demand.readers
    batches = [one._replace(disk_s=one.disk_s * alone) for one in draw.batches]
    if full.workers and not demand.workers:
        batches = [
            in_workers(
                w, cost, nbytes, tensors, demand.collate_memory_s, pinned=full.pinned, factor=draw.handoff
            )
            for w in batches
        ]
    elif demand.workers and not full.workers:
        batches = [in_line(w, cost, nbytes, tensors, demand.memory_s, pinned=full.pinned) for w in batches]
        spun = _spinning(full, nbytes, draw.coupling)
        batches = [w._replace(collate_s=w.collate_s * spun) for w in batches]
    if ratio != 1:
        batches = [resized(w, cost, ratio, nbytes, draw.step_power) for w in batches]
    cpu = draw.cpu * _crowding(demand, batches, full)
    before = _held_up(demand, demand.batches, demand.workers, demand.machine.cores, draw.coupling)
    step = draw.step * _held_up(demand, batches, full.workers, full.cores, draw.coupling) / before
    left = full.left
    making = cpu * left.get("cpu", 1.0), cpu * left.get("collate", 1.0)
    if full.evened:
        batches = _evened(batches, full.evened)
    handoff = left.get("handoff", 1.0)
    if demand.workers:
        handoff *= draw.handoff
    return [
        w._replace(
            cpu_s=w.cpu_s * making[0],
            collate_s=_lighter(w.collate_s, demand.collate_memory_s if demand.workers else 0.0, handoff)
            * making[1],
            blocked_s=w.blocked_s * left.get("remote", 1.0),
            late_s=w.late_s * full.foreign,
            disk_s=w.disk_s * left.get("disk", 1.0),
            send_s=w.send_s * handoff,
            send_delay_s=w.send_delay_s * handoff,
            index_s=w.index_s * left.get("sampler", 1.0),
            take_s=w.take_s * handoff,
            take_delay_s=w.take_delay_s * handoff,
            busy_delay_s=w.busy_delay_s * left.get("handoff", 1.0),
            pin_s=w.pin_s * left.get("pin", 1.0),
            step_s=w.step_s * step,
            step_delay_s=w.step_delay_s * draw.step,
            ahead_s=w.ahead_s * draw.step,
        )
        for w in batches
    ]


def _held_up(
    demand: LoaderDemand, batches: Sequence[BatchDemand], workers: int, cores: float, coupling: float
) -> float:
    """How much longer a step of several threads takes because workers hold up one of them at a time."""
    threads = demand.machine.step_threads
    if not workers or threads <= 1:
        return 1.0
    crowd = max((threads + _busy(batches, workers)) / max(cores, 1.0), 1.0)
    return float(crowd ** (coupling * min(threads - 1, 1.0)))


def _spinning(full: FullScenario, nbytes: float, coupling: float) -> float:
    """How much longer collating takes in the training process, where torch uses a thread per core for it.

    On cores that other processes use, too, these threads spin while they wait for the one that has no core:
    beside five busy threads on two cores, collating took twenty times as long as with one thread.
    """
    if nbytes < _SHARED_COPY_BYTES or full.cores < 2:
        return 1.0
    return float((1 + full.competition.threads / full.cores) ** (_SPIN_POWER * coupling))


def _lighter(collate_s: float, shared_s: float, left: float) -> float:
    """Collating with a cheaper hand-off: in a worker, shared memory for the batch is part of the hand-off."""
    return collate_s - min(shared_s, collate_s) * (1 - left)


def _crowding(demand: LoaderDemand, batches: Sequence[BatchDemand], full: FullScenario) -> float:
    """How much longer CPU work takes because more cores compute at once than in the recorded run."""
    costs, before = demand.machine.costs, demand.machine.cores
    recorded = costs.growth(min(_busy(demand.batches, demand.workers) + 1, before) / before)
    return costs.growth(min(_busy(batches, full.workers) + 1, full.cores) / full.cores) / recorded


def _busy(batches: Sequence[BatchDemand], workers: int) -> float:
    """How many workers compute at once: those that wait, or that are ahead of training, leave their cores."""
    making_s = fmean(w.cpu_s + w.collate_s + w.send_s for w in batches)
    waiting_s = fmean(w.blocked_s + w.late_s + w.disk_s for w in batches)
    step_s = fmean(w.device_s for w in batches)
    if making_s <= 0:
        return 0.0
    return min(workers * making_s / (making_s + waiting_s), making_s / max(step_s, _SHORTEST_S))


def _evened(batches: Sequence[BatchDemand], share: float) -> list[BatchDemand]:
    """Batches closer to their mean by `share`: the same work, spread more evenly."""
    cpu_s, collate_s, blocked_s, disk_s = (
        fmean(getattr(w, name) for w in batches) for name in ("cpu_s", "collate_s", "blocked_s", "disk_s")
    )
    return [
        w._replace(
            cpu_s=w.cpu_s + (cpu_s - w.cpu_s) * share,
            collate_s=w.collate_s + (collate_s - w.collate_s) * share,
            blocked_s=w.blocked_s + (blocked_s - w.blocked_s) * share,
            disk_s=w.disk_s + (disk_s - w.disk_s) * share,
        )
        for w in batches
    ]


def _steady(batches: Sequence[BatchDemand], setup: LoaderSetup) -> SimulatedPace:
    """The pace in the middle of a long epoch."""
    settled = setup.workers * setup.prefetch + _SETTLED
    return _measured(
        simulate(batches, settled + rounds(max(len(batches), _FEWEST_SIMULATED), setup) + 1, setup), settled
    )


def rounds(count: int, setup: LoaderSetup) -> int:
    """`count` rounded up to the same number for each worker: workers in step deliver all at once."""
    crew = max(setup.workers, 1)
    return math.ceil(count / crew) * crew


def _measured(run: SimulatedRun, first: int) -> SimulatedPace:
    """The pace from delivery `first` to the last."""
    got = run.got_s[first:]
    passed_s = max(got[-1] - got[0], _SHORTEST_S)
    return SimulatedPace(passed_s / (len(got) - 1), sum(run.lost_s[first + 1 :]) / passed_s, run.slowdown)


def _by_epochs(
    epochs: EpochCosts,
    demand: LoaderDemand,
    full: FullScenario,
    draw: Draw,
    batches: Sequence[BatchDemand],
    setup: LoaderSetup,
) -> SimulatedPace:
    """The pace over whole epochs, their starts and ends included."""
    start = start_of(demand, full, draw)
    count = min(epochs.batches, _MOST_SIMULATED)
    times = max(1, _FEWEST_SIMULATED // count)
    begin_s = inside_s = waited_s = 0.0
    for number in range(times):
        rotated = [
            batches[(place + number * count) % len(batches)] for place in range(min(len(batches), count))
        ]
        run = simulate(rotated, count, setup, start)
        middle = max(count - 1 - rounds(count // 2, setup), 0)
        later = _measured(run, middle) if count < epochs.batches else SimulatedPace(0.0, 0.0, 1.0)
        more_s = later.period_s * (epochs.batches - count)
        begin_s += run.got_s[0] / times
        inside_s += (run.got_s[-1] - run.got_s[0] + more_s) / times
        waited_s += (sum(run.lost_s[1:]) + more_s * later.wait_share) / times
    inside_s += fmean(w.step_s + w.step_delay_s for w in batches)
    around_s = begin_s + _end_s(demand, full, draw) + epochs.between_s
    period_s = max(inside_s / epochs.batches + around_s * epochs.starts, _SHORTEST_S)
    waiting_s = waited_s / epochs.batches + begin_s * epochs.starts
    return SimulatedPace(period_s, min(waiting_s / period_s, 1.0), run.slowdown)


def start_of(demand: LoaderDemand, full: FullScenario, draw: Draw) -> WorkerStart:
    """Cost of creating the workers of an epoch: as measured if it was, nothing if they are persistent."""
    if not full.workers or full.persistent:
        return WorkerStart(0.0, 0.0)
    epochs, left = demand.epochs, full.left.get("start", 1.0) * draw.start
    if epochs is not None and demand.makes_workers:
        return WorkerStart(epochs.iter_s / demand.workers * left, epochs.boot_s * left)
    spawned = demand.config.get("multiprocessing_context") in ("spawn", "forkserver")
    costs = demand.machine.costs
    fork_s = 0.0 if spawned else costs.fork_s_per_byte * demand.machine.private_bytes
    boot_s = costs.spawn_boot_s if spawned else costs.worker_boot_s
    return WorkerStart((costs.worker_start_s + fork_s) * left, boot_s * left)


def _end_s(demand: LoaderDemand, full: FullScenario, draw: Draw) -> float:
    """Seconds to end the workers of an epoch."""
    if not full.workers or full.persistent:
        return 0.0
    costs = demand.machine.costs
    usual_s = costs.end_s + costs.end_s_per_worker * full.workers
    if demand.epochs is not None and demand.makes_workers:
        recorded_s = costs.end_s + costs.end_s_per_worker * demand.workers
        return demand.epochs.end_s * usual_s / recorded_s * draw.start
    return usual_s * draw.start
