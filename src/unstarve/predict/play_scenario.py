"""A scenario → the same batches, played as it says: seconds per batch, and how much of them is waiting."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from unstarve.model import Scenario
from unstarve.predict import handoff_cost as cost
from unstarve.predict.demand import Demands
from unstarve.predict.draws import Draw
from unstarve.predict.epochs import Epochs
from unstarve.predict.parts import Crowd, Layout, Played, Start, Work
from unstarve.predict.simulate import play

_STOCK_PREFETCH = 2
_MOST_AHEAD = 512
"""Batches that are played ahead of training: a queue longer than there are different ones changes nothing."""
_LEAST_PREFETCH = 4
"""What any number of workers may prefetch all the same."""
_SHORTEST_S = 1e-9
_SETTLED = 5
"""Batches after every worker's first that are not counted, either."""
_MOST_PLAYED = 120
"""Batches of an epoch that are played; a longer one goes on as it was in their second half."""
_FEWEST_PLAYED = 40
_CROWDING = 0.06
"""By how much CPU work grows when twice as many workers share caches, memory and power."""
_SEEN_QUEUE = 1.1
"""Slowdown from which on a crowd on the cores is told from the moments that waking up takes."""
_TRIES = 6
_ALONE_CORES = 0.15
"""Less than this of others' work is the system's own."""


@dataclass(frozen=True, slots=True)
class Setup:
    """A scenario in full."""

    workers: int
    prefetch: int
    in_order: bool
    persistent: bool
    pinned: bool
    batch_size: int | None
    cores: float
    crowd: Crowd
    foreign: float
    """Share of other people's work that is left."""
    left: Mapping[str, float]
    evened: float

    def size_ratio(self, demands: Demands) -> float:
        """Samples of a batch against the recorded one's."""
        recorded = demands.config.get("batch_size")
        return self.batch_size / recorded if self.batch_size and recorded else 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What playing came to."""

    period_s: float
    """Per batch, starts of epochs included where there were several."""
    wait_share: float
    slowdown: float
    """How much longer than alone all CPU work took."""


def resolve(demands: Demands, scenario: Scenario) -> Setup:
    """The scenario, and what was recorded where it says nothing."""
    config, machine = demands.config, demands.machine
    prefetch = config.get("prefetch_factor")
    size = config.get("batch_size")
    workers = demands.workers if scenario.workers is None else scenario.workers
    return Setup(
        workers=workers,
        prefetch=(scenario.prefetch or prefetch or _STOCK_PREFETCH) if workers else _STOCK_PREFETCH,
        in_order=config.get("in_order") is not False if scenario.in_order is None else scenario.in_order,
        persistent=bool(
            config.get("persistent_workers") if scenario.persistent is None else scenario.persistent
        ),
        pinned=demands.pinned,
        batch_size=scenario.batch_size or (size if isinstance(size, int) else None),
        cores=scenario.cores or machine.cores,
        crowd=_thinned(demands.crowd, machine.cores, scenario),
        foreign=scenario.foreign,
        left=dict(scenario.left),
        evened=scenario.evened,
    )


def outcome_of(demands: Demands, setup: Setup, draw: Draw) -> Outcome:
    """Play the draw's batches in such a loader."""
    works = _works(demands, setup, draw)
    layout = Layout(
        workers=setup.workers,
        prefetch=min(setup.prefetch, max(_MOST_AHEAD // max(setup.workers, 1), _LEAST_PREFETCH)),
        in_order=setup.in_order,
        pinned=setup.pinned and setup.workers > 0,
        cores=setup.cores,
        crowd=setup.crowd._replace(hungry=setup.crowd.hungry * draw.foreign),
        step_threads=demands.machine.step_threads,
        disk_power=draw.disk_power,
        disk_depth=draw.disk_depth,
        remote_limit=max(demands.workers, 1) if draw.remote_power < 1 else math.inf,
        remote_power=draw.remote_power,
    )
    if demands.epochs is None:
        return _steady(works, layout)
    return _by_epochs(demands.epochs, demands, setup, draw, works, layout)


def with_crowd(demands: Demands, draw: Draw) -> Demands:
    """The same, with who else wanted the cores: told from what others used and from the queue for a core."""
    machine, used = demands.machine, demands.machine.foreign
    if machine.slowdown < _SEEN_QUEUE:  # if there were others, they left enough
        content = Crowd(used or 0.0, max(machine.cores - (used or 0.0), 0.0), machine.grouped)
        return dataclasses.replace(demands, crowd=content)
    if used is not None and used < _ALONE_CORES:
        return demands  # the crowd is our own
    low, high = 0.0, machine.slowdown * machine.cores
    for _ in range(_TRIES):
        middle = (low + high) / 2
        crowded = dataclasses.replace(demands, crowd=Crowd(middle, 0.0, machine.grouped))
        tried = outcome_of(crowded, resolve(crowded, Scenario()), draw.as_recorded())
        fewer = tried.slowdown > machine.slowdown or tried.period_s > demands.period_s
        low, high = (low, middle) if fewer else (middle, high)
    return dataclasses.replace(demands, crowd=Crowd(low, 0.0, machine.grouped))


def _thinned(crowd: Crowd, recorded_cores: float, scenario: Scenario) -> Crowd:
    """Fewer others, and more cores: what they took of the recorded ones is all they take."""
    taken = max(recorded_cores - crowd.spare, 0.0) * scenario.foreign if crowd.spare else 0.0
    cores = scenario.cores or recorded_cores
    return crowd._replace(
        hungry=crowd.hungry * scenario.foreign, spare=max(cores - taken, 0.0) if taken else 0.0
    )


def _works(demands: Demands, setup: Setup, draw: Draw) -> Sequence[Work]:
    """What the draw's batches demand in such a loader."""
    nbytes, ratio = demands.nbytes or 0.0, setup.size_ratio(demands)
    tensors = demands.tensors or cost.USUAL_TENSORS
    alone = min(demands.readers, draw.disk_depth) ** draw.disk_power / demands.readers
    works = [work._replace(disk_s=work.disk_s * alone) for work in draw.works]
    if setup.workers and not demands.workers:
        works = [cost.in_workers(w, nbytes, tensors, pinned=setup.pinned, factor=draw.handoff) for w in works]
    elif demands.workers and not setup.workers:
        works = [cost.in_line(w, nbytes, tensors, demands.memory_s, pinned=setup.pinned) for w in works]
    if ratio != 1:
        works = [cost.resized(w, ratio, nbytes, draw.step_power) for w in works]
    crowd = draw.cpu * (1 + _CROWDING * _doublings(demands, setup))
    left = setup.left
    making = crowd * left.get("cpu", 1.0), crowd * left.get("collate", 1.0)
    if setup.evened:
        works = _evened(works, setup.evened)
    handoff = left.get("handoff", 1.0)
    if demands.workers:
        handoff *= draw.handoff
    return [
        w._replace(
            cpu_s=w.cpu_s * making[0],
            collate_s=_lighter(w.collate_s, demands.shared_s if demands.workers else 0.0, handoff)
            * making[1],
            blocked_s=w.blocked_s * left.get("remote", 1.0),
            late_s=w.late_s * setup.foreign,
            disk_s=w.disk_s * left.get("disk", 1.0),
            send_s=w.send_s * handoff,
            send_delay_s=w.send_delay_s * handoff,
            index_s=w.index_s * left.get("sampler", 1.0),
            take_s=w.take_s * handoff,
            take_delay_s=w.take_delay_s * handoff,
            pin_s=w.pin_s * left.get("pin", 1.0),
            step_s=w.step_s * draw.step,
            step_delay_s=w.step_delay_s * draw.step,
            ahead_s=w.ahead_s * draw.step,
        )
        for w in works
    ]


def _lighter(collate_s: float, shared_s: float, left: float) -> float:
    """Of collating in a worker, making shared memory belongs to the hand-off."""
    return collate_s - min(shared_s, collate_s) * (1 - left)


def _doublings(demands: Demands, setup: Setup) -> float:
    """How often the number of processes that compute at once doubles."""
    most = setup.cores + 1
    return math.log2(min(setup.workers + 1, most) / min(demands.workers + 1, most))


def _evened(works: Sequence[Work], share: float) -> list[Work]:
    """Slow batches are nearer to the mean by `share`: the work is the same, spread more evenly."""
    cpu_s, collate_s, blocked_s, disk_s = (
        fmean(getattr(w, name) for w in works) for name in ("cpu_s", "collate_s", "blocked_s", "disk_s")
    )
    return [
        w._replace(
            cpu_s=w.cpu_s + (cpu_s - w.cpu_s) * share,
            collate_s=w.collate_s + (collate_s - w.collate_s) * share,
            blocked_s=w.blocked_s + (blocked_s - w.blocked_s) * share,
            disk_s=w.disk_s + (disk_s - w.disk_s) * share,
        )
        for w in works
    ]


def _steady(works: Sequence[Work], layout: Layout) -> Outcome:
    """In the middle of a long epoch."""
    settled = layout.workers * layout.prefetch + _SETTLED
    return _measured(
        play(works, settled + _rounds(max(len(works), _FEWEST_PLAYED), layout) + 1, layout), settled
    )


def _rounds(count: int, layout: Layout) -> int:
    """Batches, rounded up to as many for each worker: those that work in step deliver all at once."""
    crew = max(layout.workers, 1)
    return math.ceil(count / crew) * crew


def _measured(played: Played, first: int) -> Outcome:
    """From one delivery to the last."""
    got = played.got_s[first:]
    passed_s = max(got[-1] - got[0], _SHORTEST_S)
    return Outcome(passed_s / (len(got) - 1), sum(played.lost_s[first + 1 :]) / passed_s, played.slowdown)


def _by_epochs(
    epochs: Epochs, demands: Demands, setup: Setup, draw: Draw, works: Sequence[Work], layout: Layout
) -> Outcome:
    """Over whole epochs, with what it takes to begin and to end them."""
    start = _start(demands, setup, draw)
    count = min(epochs.batches, _MOST_PLAYED)
    rounds = max(1, _FEWEST_PLAYED // count)
    begin_s = inside_s = waited_s = 0.0
    for number in range(rounds):
        turned = [works[(place + number * count) % len(works)] for place in range(min(len(works), count))]
        played = play(turned, count, layout, start)
        middle = max(count - 1 - _rounds(count // 2, layout), 0)
        later = _measured(played, middle) if count < epochs.batches else Outcome(0.0, 0.0, 1.0)
        more_s = later.period_s * (epochs.batches - count)
        begin_s += played.got_s[0] / rounds
        inside_s += (played.got_s[-1] - played.got_s[0] + more_s) / rounds
        waited_s += (sum(played.lost_s[1:]) + more_s * later.wait_share) / rounds
    inside_s += fmean(w.step_s + w.step_delay_s for w in works)
    around_s = begin_s + _end_s(demands, setup, draw) + epochs.between_s
    period_s = max(inside_s / epochs.batches + around_s * epochs.starts, _SHORTEST_S)
    waiting_s = waited_s / epochs.batches + begin_s * epochs.starts
    return Outcome(period_s, min(waiting_s / period_s, 1.0), played.slowdown)


def _start(demands: Demands, setup: Setup, draw: Draw) -> Start:
    """What making the workers of an epoch costs: measured where it was seen, nothing where they are kept."""
    if not setup.workers or setup.persistent:
        return Start(0.0, 0.0)
    epochs, left = demands.epochs, setup.left.get("start", 1.0) * draw.start
    if epochs is not None and demands.makes_workers:
        return Start(epochs.iter_s / demands.workers * left, epochs.boot_s * left)
    spawned = demands.config.get("multiprocessing_context") in ("spawn", "forkserver")
    return Start(cost.WORKER_START_S * left, (cost.SPAWN_BOOT_S if spawned else cost.WORKER_BOOT_S) * left)


def _end_s(demands: Demands, setup: Setup, draw: Draw) -> float:
    """What ending the workers of an epoch costs."""
    if not setup.workers or setup.persistent:
        return 0.0
    usual_s = cost.END_S + cost.END_S_PER_WORKER * setup.workers
    if demands.epochs is not None and demands.makes_workers:
        recorded_s = cost.END_S + cost.END_S_PER_WORKER * demands.workers
        return demands.epochs.end_s * usual_s / recorded_s * draw.start
    return usual_s * draw.start
