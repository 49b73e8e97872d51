"""Rules about how many processes make batches, and about the cores they run on."""

from __future__ import annotations

from typing import Any

from unstarve.advise.code import loader_call
from unstarve.advise.facts import costliest, is_iterable, matters, named, stock_loader, usable_cores
from unstarve.advise.gain import (
    AS_IT_IS,
    cheaper,
    computing_s,
    enough_workers,
    free_step_s,
    making_s,
    predict,
)
from unstarve.advise.images import decodes_images
from unstarve.intervals import WORTH_IT
from unstarve.model import Advice, Cause, Diagnosis, Scenario
from unstarve.words import ms, workers

_BLOCKED = 0.5
"""From this share of a fetch on, waiting decides how long it takes."""
_WORTH_TELLING_S = 0.5e-3


def workers_past_the_cores(d: Diagnosis) -> Advice | None:
    """A fetch that waits needs no core: workers beyond their number still help, which few people dare."""
    count, demand = enough_workers(d), d.demand
    if demand is None or count is None or count <= demand.workers or not matters(d, Cause.REMOTE):
        return None
    if demand.remote_s < _BLOCKED * demand.fetch_s:
        return None
    cores = usable_cores(d)
    past = f", more than the {cores:g} cores" if cores is not None and count > cores else ""
    found = costliest(d, Cause.REMOTE)[:1]
    crowd = demand.workers > 1  # then they may wait for each other, and more of them would not help
    return _worker_advice(
        d,
        "more-workers",
        count,
        f"Use {workers(count)}{past}: fetches wait, they hardly compute",
        f"a batch takes {ms(demand.fetch_s)} to fetch and is blocked for {ms(demand.remote_s)} of it, "
        "which costs no core"
        + (f"; sampled there: {named(found)}" if found else "")
        + ("; no help if they wait for a lock that they share" if crowd else ""),
    )


def workers_instead_of_none(d: Diagnosis) -> Advice | None:
    """``num_workers=0`` is torch's default: loading and training then take turns while cores stand idle."""
    count, demand, cores = enough_workers(d), d.demand, usable_cores(d)
    if demand is None or count is None or demand.workers or matters(d, Cause.REMOTE):
        return None
    if not matters(d, Cause.CPU, Cause.DISK, Cause.COLLATE) or (cores is not None and cores < 2):
        return None
    return _worker_advice(
        d,
        "use-workers",
        count,
        f"Make batches in {workers(count)}, while the step runs",
        f"with num_workers=0 the training process makes each batch itself, in {ms(making_s(demand))}",
    )


def workers_on_idle_cores(d: Diagnosis) -> Advice | None:
    """CPU work spreads over cores until they are used up, and no further."""
    count, demand, cores = enough_workers(d), d.demand, usable_cores(d)
    if demand is None or count is None or cores is None or count <= demand.workers or not demand.workers:
        return None
    if not matters(d, Cause.CPU, Cause.COLLATE) or demand.workers >= cores:
        return None
    return _worker_advice(
        d,
        "fill-cores",
        count,
        f"Use {workers(count)}: there are cores left",
        f"a batch takes {ms(making_s(demand))} to make, with {workers(demand.workers)} on {cores:g} cores",
    )


def cheaper_samples(d: Diagnosis) -> Advice | None:
    """When every core works, more workers only wait for each other: the work itself must shrink."""
    demand, cores, free = d.demand, usable_cores(d), free_step_s(d)
    if demand is None or cores is None or not free:
        return None
    crowded = matters(d, Cause.CONTENTION) and demand.workers > cores
    if not matters(d, Cause.CPU) and not crowded:
        return None
    if demand.workers < cores and computing_s(demand) / cores <= free:
        return None
    if decodes_images(d):
        return None  # there is a rule that knows how
    found = costliest(d, Cause.CPU)
    what = f"{found[0].name}()" if found else "what __getitem__ does"
    spent = f"; sampled there: {named(found)}" if found else ""
    part = sum(cost.share for cost in found) or 1.0
    return Advice(
        "cheaper-work",
        f"Make {what} cheaper: {cores:g} cores are too few for it",
        f"a batch needs {ms(computing_s(demand))} of CPU and there are {cores:g} cores{spent}",
        {},
        predict(
            d,
            cheaper("cpu", 1 - min(part, 1.0) / 2),
            worst=AS_IT_IS,
            best=cheaper("cpu", 1 - min(part, 1.0) * 0.75),
        ),
        "# once, before training: decode, resize, save as uint8 arrays\n"
        "# in __getitem__: load the array, do only what is random",
    )


def fewer_workers(d: Diagnosis) -> Advice | None:
    """More workers with CPU work than cores take turns: switches and memory without a gain."""
    demand, cores = d.demand, usable_cores(d)
    if demand is None or cores is None or not matters(d, Cause.CONTENTION) or demand.workers <= cores:
        return None
    count = max(int(cores), 1)
    advice = _worker_advice(
        d,
        "fewer-workers",
        count,
        f"Use {workers(count)}: there are no more cores",
        f"{workers(demand.workers)} share {cores:g} cores and stood in line for {ms(demand.queued_s)} of a "
        f"batch's {ms(demand.fetch_s)}",
    )
    # Fewer of them also get less of the cores beside the training thread: only a clear gain is one.
    clear = advice is not None and advice.speedup is not None and advice.speedup.predicted >= WORTH_IT
    return advice if clear else None


def more_cores(d: Diagnosis) -> Advice | None:
    """Work that waits for a core although workers are few is held up by a quota or by somebody else."""
    demand, cores = d.demand, usable_cores(d)
    if not matters(d, Cause.CONTENTION):
        return None
    quota, present = d.system.get("quota_cores"), d.system.get("cores")
    limited = quota is not None and (present is None or quota < present)
    if not limited and demand is not None and cores is not None and demand.workers > cores:
        return None  # its own workers are the crowd
    known = demand is not None and demand.queued_s > _WORTH_TELLING_S
    queued = f"; a fetch stood in line for {ms(demand.queued_s)}" if demand is not None and known else ""
    if limited:
        title = f"Lift the CPU quota of {quota:g} cores"
        why = f"the container may use {quota:g} of {present or 'the machine’s'} cores{queued}"
        code = "docker run --cpus=N …   # Kubernetes: resources.limits.cpu"
    else:
        title = "Move other work off these cores"
        why = f"batches wait for a core although there are no more workers than cores{queued}"
        code = (
            "ps -eo pid,psr,pcpu,comm --sort=-pcpu | head   # who else runs here\n"
            "cv2.setNumThreads(0)   # in worker_init_fn: one thread per worker"
        )
    likely = Scenario(cores=float(present), foreign=0.5) if limited and present else Scenario(foreign=0.5)
    free = Scenario(cores=likely.cores, foreign=0.0)
    return Advice("more-cores", title, why, {}, predict(d, likely, worst=AS_IT_IS, best=free), code)


def _worker_advice(d: Diagnosis, id: str, count: int, title: str, why: str) -> Advice | None:
    loader, demand = stock_loader(d), d.demand
    if loader is None or demand is None:
        return None
    change: dict[str, Any] = {"num_workers": count}
    likely = Scenario(workers=count)
    if not demand.workers and loader.epochs > 1:
        change["persistent_workers"] = True  # else every epoch would pay for starting them
        likely = Scenario(workers=count, persistent=True)
    if is_iterable(loader) and count > max(demand.workers, 1):
        why += "; an IterableDataset must share its samples out by get_worker_info()"
    return Advice(id, title, why, change, predict(d, likely), loader_call(loader, change))
