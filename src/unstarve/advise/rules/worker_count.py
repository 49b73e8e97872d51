"""Rules about the number of workers and the cores they run on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from unstarve.advise.diagnosis_facts import (
    costliest,
    engine_without_workers,
    is_iterable,
    matters,
    named,
    own_command,
    share_of,
    stock_loader,
    usable_cores,
    worker_loader,
)
from unstarve.advise.gain import (
    UNCHANGED,
    cheaper,
    computing_s,
    enough_workers,
    free_step_s,
    making_s,
)
from unstarve.advise.proposal import Edit, Proposal
from unstarve.advise.rules.data_storage import tensor_files
from unstarve.advise.rules.image_decoding import decode_only_the_crop
from unstarve.advise.rules.kept_samples import keep_in_memory, rows_in_memory
from unstarve.intervals import WORTH_IT
from unstarve.model import Cause, Diagnosis, LoaderSummary, Rejected, Scenario
from unstarve.words import duration, percent, printable, workers

_BLOCKED = 0.5
"""A fetch that waits for at least this share of its time is limited by waiting."""
_CHEAPER = (decode_only_the_crop, keep_in_memory, rows_in_memory, tensor_files)
"""Rules that name a part of unstarve which makes samples cheaper."""
_SPLIT = "an IterableDataset must split its samples by get_worker_info()"
_LIBRARIES = ("site-packages", "dist-packages")
_HELPED = 0.2
"""Other threads that take more than this share of a fetch's CPU time are worth stopping."""
_LEAST_HELPED_S = 1e-3
"""For a batch; less is the bookkeeping of queues and watchers, which no setting takes away."""
ONE_THREAD = "OPENBLAS_NUM_THREADS=1 OPENCV_FOR_THREADS_NUM=1 RAYON_NUM_THREADS=1 POLARS_MAX_THREADS=1"
"""The libraries that datasets use; torch's own threads, which the step needs, are left alone."""


def workers_past_the_cores(d: Diagnosis) -> Proposal | None:
    """A fetch that waits needs no core: more workers than cores still help."""
    count, demand = enough_workers(d), d.demand
    if demand is None or count is None or count <= demand.workers or not matters(d, Cause.REMOTE):
        return None
    if demand.remote_s < _BLOCKED * demand.fetch_s:
        return None
    cores = usable_cores(d)
    past = f" even on {_cores(cores)}" if cores is not None and count > cores else ""
    found = costliest(d, Cause.REMOTE)[:1]
    several = demand.workers > 1  # they may wait for each other, and more of them would not help
    return _worker_advice(
        d,
        "more-workers",
        count,
        f"Use {workers(count)}{past}: fetching mostly waits",
        f"fetching a batch takes {duration(demand.fetch_s)}, including {duration(demand.remote_s)} "
        f"of off-CPU waiting, "
        "which needs no core"
        + (f"; top function: {named(found)}" if found else "")
        + ("; this does not help if workers wait for a lock they share" if several else ""),
    )


def more_shards(d: Diagnosis) -> Proposal | None:
    """A worker needs a shard to read: of a stream, more workers than shards have nothing to do."""
    count, demand, loader = enough_workers(d), d.demand, worker_loader(d)
    shards = None if loader is None else _shards(loader)
    if demand is None or loader is None or shards is None or count is None or count <= shards:
        return None
    if not matters(d, Cause.REMOTE, Cause.CPU, Cause.DISK, Cause.COLLATE) or count <= demand.workers:
        return None
    few = "1 shard keeps" if shards == 1 else f"{shards} shards keep"
    advised = _worker_advice(
        d,
        "more-shards",
        count,
        f"Write the stream as {count} shards or more, and use {workers(count)}",
        f"{few} at most {workers(shards)} busy: the others have nothing to read",
        most=count,
    )
    before = f"# once: write the data as a multiple of {count} shards of equal size"
    if advised is None:
        return None
    until = f"Until then, use {workers(shards)}." if demand.workers < shards else ""
    edit = replace(advised.edit, before=(before,))
    return replace(advised, what=f"{count} shards", edit=edit, note=until)


def _shards(loader: LoaderSummary) -> int | None:
    found = loader.dataset.get("shards")
    return found if isinstance(found, int) and found > 0 else None


def workers_instead_of_none(d: Diagnosis) -> Proposal | Rejected | None:
    """With ``num_workers=0``, torch's default, loading and training take turns while cores are idle."""
    count, demand, cores, loader = enough_workers(d), d.demand, usable_cores(d), stock_loader(d)
    if demand is None or demand.workers or not matters(d, Cause.CPU, Cause.DISK, Cause.COLLATE):
        return None
    if loader is not None and (engine := engine_without_workers(loader)) is not None:
        return Rejected("use-workers", "num_workers", f"changes nothing: the {engine} engine has no workers")
    if count is None or matters(d, Cause.REMOTE) or (cores is not None and cores < 2):
        return None
    return _worker_advice(
        d,
        "use-workers",
        count,
        f"Use {workers(count)} to make batches while the step runs",
        f"with num_workers=0, the training process itself makes each batch, in {duration(making_s(demand))}",
    )


def workers_on_idle_cores(d: Diagnosis) -> Proposal | None:
    """CPU work spreads over cores until all are busy."""
    count, demand, cores = enough_workers(d), d.demand, usable_cores(d)
    if demand is None or cores is None or not demand.workers or not matters(d, Cause.CPU, Cause.COLLATE):
        return None
    if count is None or count <= demand.workers or demand.workers >= cores:
        return None
    return _worker_advice(
        d,
        "fill-cores",
        count,
        f"Use {workers(count)}: some cores are idle",
        f"making a batch takes {duration(making_s(demand))}, with {workers(demand.workers)} on "
        f"{_cores(cores)}",
    )


def cheaper_samples(d: Diagnosis) -> Proposal | None:
    """When every core is busy, more workers only wait for each other: the work itself must shrink."""
    demand, cores, free = d.demand, usable_cores(d), free_step_s(d)
    if demand is None or cores is None or not free:
        return None
    crowded = matters(d, Cause.CONTENTION) and demand.workers > cores
    if not matters(d, Cause.CPU) and not crowded:
        return None
    if demand.workers < cores and computing_s(demand) / cores <= free:
        return None
    if any(isinstance(rule(d), Proposal) for rule in _CHEAPER):
        return None  # they say how
    found = costliest(d, Cause.CPU)
    own = found and not any(folder in found[0].file for folder in _LIBRARIES)
    what = f"{found[0].name}()" if own else f"{_dataset(d)}.__getitem__"
    spent = f"; top functions by share of fetching: {named(found)}" if found else ""
    part = sum(cost.share for cost in found) or 1.0
    return Proposal(
        "cheaper-work",
        "cheaper samples",
        f"Make {what} cheaper: {_cores(cores)} cannot keep up",
        f"a batch needs {duration(computing_s(demand))} of CPU time on {_cores(cores)}{spent}",
        Edit(
            before=(
                "# Compute once, before training, whatever is the same in every epoch.",
                "# Save it, load it in __getitem__, and apply only random transforms.",
            )
        ),
        cheaper("cpu", 1 - min(part, 1.0) / 2),
        worst=UNCHANGED,
        best=cheaper("cpu", 1 - min(part, 1.0) * 0.75),
    )


def fewer_workers(d: Diagnosis) -> Proposal | None:
    """More busy workers than cores take turns, and take the cores away from the step."""
    demand, cores = d.demand, usable_cores(d)
    if demand is None or cores is None or not matters(d, Cause.CONTENTION) or demand.workers <= cores:
        return None
    count = max(int(cores), 1)
    return _worker_advice(
        d,
        "fewer-workers",
        count,
        f"Use {workers(count)}, one per core",
        f"{workers(demand.workers)} and the step share {_cores(cores)}: training {_without_core(d)}",
        # Fewer workers also get a smaller share of the cores beside training: only a clear gain counts.
        least=WORTH_IT,
    )


def one_thread_per_worker(d: Diagnosis) -> Proposal | None:
    """Libraries start a thread per core, in every worker."""
    demand, cores = d.demand, usable_cores(d)
    if demand is None or cores is None or not matters(d, Cause.CONTENTION) or not _workers_have_threads(d):
        return None
    return Proposal(
        "one-thread-per-worker",
        "one thread per worker",
        "Let each worker compute with one thread",
        f"{workers(demand.workers)} with several threads each share {_cores(cores)}: their other threads "
        f"compute {duration(demand.helped_s)} per batch, and training {_without_core(d)}",
        Edit(),
        None,  # how much slower a worker is with one thread was not measured
        command=f"{ONE_THREAD} {own_command(d, python=True)}",
    )


def more_cores(d: Diagnosis) -> Proposal | None:
    """With few workers, waiting for a core comes from a quota or from other processes."""
    demand, cores = d.demand, usable_cores(d)
    if not matters(d, Cause.CONTENTION) or _workers_have_threads(d):
        return None
    quota, present = d.system.get("quota_cores"), d.system.get("cores")
    limited = quota is not None and (present is None or quota < present)
    if not limited and demand is not None and cores is not None and demand.workers > cores:
        return None  # its own workers compete for the cores
    if limited:
        title = f"Raise the CPU quota of {_cores(float(quota or 0))}"
        why = f"the container may use {quota:g} of {present or 'the machine’s'} cores: training "
    else:
        title = "Move other work off these cores"
        why = "the loader does not have more workers than there are cores, and yet training "
    likely = Scenario(cores=float(present), foreign=0.5) if limited and present else Scenario(foreign=0.5)
    free = Scenario(cores=likely.cores, foreign=0.0)
    return Proposal(
        "more-cores",
        "more cores",
        title,
        why + _without_core(d),
        Edit(),
        likely,
        worst=UNCHANGED,
        best=free,
    )


def _dataset(d: Diagnosis) -> str:
    loader = stock_loader(d)
    return "the dataset" if loader is None else printable(str(loader.config.get("dataset", "the dataset")))


def _workers_have_threads(d: Diagnosis) -> bool:
    """Whether workers compete with each other's threads."""
    demand = d.demand
    if demand is None or worker_loader(d) is None or demand.workers < 2:
        return False
    shared = demand.helped_s > _HELPED * (demand.cpu_s + demand.helped_s)
    return shared and demand.helped_s > _LEAST_HELPED_S


def _without_core(d: Diagnosis) -> str:
    """``waits for a free core 43% of the time``: waits and steps, as the budget counts them."""
    return f"waits for a free core {percent(share_of(d, Cause.CONTENTION))} of the time"


def _cores(count: float) -> str:
    return "1 core" if count == 1 else f"{count:g} cores"


def _worker_advice(
    d: Diagnosis,
    id: str,
    count: int,
    title: str,
    why: str,
    least: float | None = None,
    most: int | None = None,
) -> Proposal | None:
    loader, demand = worker_loader(d), d.demand
    if loader is None or demand is None:
        return None
    shards = _shards(loader) if most is None else most
    if shards is not None and count > shards:  # as many as have something to read
        if shards <= demand.workers:
            return None
        title, count = title.replace(workers(count), workers(shards)), shards
    change: dict[str, Any] = {"num_workers": count}
    likely = Scenario(workers=count)
    if not demand.workers and loader.epochs > 1:
        change["persistent_workers"] = True  # otherwise every epoch would start them anew
        likely = Scenario(workers=count, persistent=True)
    if is_iterable(loader) and count > max(demand.workers, 1) and shards is None:
        splits = loader.dataset.get("library")
        why += "; each worker reads its own shards" if splits else f"; {_SPLIT}"
    return Proposal(id, workers(count), title, why, Edit(change), likely, least=least)
