"""Facts about a diagnosis that several rules need."""

from __future__ import annotations

import shlex

from unstarve.model import Cause, Diagnosis, FunctionCost, LoaderSummary
from unstarve.model.engine_names import WORKER_ENGINES
from unstarve.words import percent

_WORTH = 0.2
"""Smallest share of the waiting for which a cause deserves advice."""
_MOST_LOCAL_RANKS = 8
"""Ranks of one machine share its cores; the number of machines is not recorded."""
_MOST_NAMED = 3


def matters(d: Diagnosis, *causes: Cause) -> bool:
    """Whether these causes account for enough of the waiting."""
    waited_s = sum(d.waits.values())
    return d.verdict.cause in causes or sum(d.waits.get(c, 0.0) for c in causes) > _WORTH * waited_s


def stock_loader(d: Diagnosis) -> LoaderSummary | None:
    """The loader that advice is about; None when it is not a ``DataLoader``."""
    named = [x for x in d.loaders if d.demand is not None and x.name == d.demand.loader]
    found = next(iter(named or d.loaders), None)
    return found if found is not None and "num_workers" in found.config else None


def worker_loader(d: Diagnosis) -> LoaderSummary | None:
    """The same; None also when it runs on one of our engines that have no worker processes."""
    loader = stock_loader(d)
    return None if loader is None or engine_without_workers(loader) else loader


def engine_without_workers(loader: LoaderSummary) -> str | None:
    """The name of the engine that runs a loader without worker processes; None for any other."""
    engine = loader.config.get("engine")
    return None if engine is None or engine in WORKER_ENGINES else str(engine)


def own_command(d: Diagnosis, *, python: bool = False) -> str:
    """The command that was recorded, for a shell; with `python`, runnable without unstarve."""
    script = bool(d.command) and (d.command[0].endswith(".py") or d.command[0] == "-m")
    return shlex.join(("python", *d.command) if python and script else d.command)


def share_of(d: Diagnosis, cause: Cause) -> float:
    """The cause's share of the time, as the budget has it."""
    return next((one.share for one in d.budget if one.cause is cause), 0.0)


def workers_of(d: Diagnosis) -> int:
    """The loader's number of workers."""
    if d.demand is not None:
        return d.demand.workers
    loader = stock_loader(d)
    return 0 if loader is None else int(loader.config["num_workers"])


def usable_cores(d: Diagnosis) -> float | None:
    """Cores available to one rank: affinity and quota, divided by the ranks of a machine."""
    limits = [float(d.system[key]) for key in ("cores", "quota_cores") if d.system.get(key)]
    return max(min(limits) / min(max(d.ranks, 1), _MOST_LOCAL_RANKS), 1.0) if limits else None


def batch_bytes(d: Diagnosis) -> float | None:
    """Mean bytes of a batch's tensors."""
    loader = stock_loader(d)
    return loader.bytes / loader.steps if loader is not None and loader.bytes and loader.steps else None


def is_iterable(loader: LoaderSummary) -> bool:
    """Whether the dataset is an ``IterableDataset``, which torch gives this sampler."""
    return loader.config.get("sampler") == "_InfiniteConstantSampler"


def torch_at_least(d: Diagnosis, *wanted: int) -> bool:
    """Whether the run's torch is this version or newer; False when unknown."""
    words = d.versions.get("torch", "").split("+")[0].split(".")[: len(wanted)]
    return all(word.isdigit() for word in words) and tuple(map(int, words)) >= wanted


def costliest(d: Diagnosis, where: Cause) -> tuple[FunctionCost, ...]:
    """The few functions that take the most time of this kind."""
    found = [cost for cost in d.functions if cost.where is where]
    return tuple(sorted(found, key=lambda cost: -cost.seconds)[:_MOST_NAMED])


def named(costs: tuple[FunctionCost, ...]) -> str:
    """``decode (data.py:17) 61%, unstarve.CachedDataset 22%``."""
    return ", ".join(f"{c.name}{_place(c)} {percent(c.share)}" for c in costs)


def _place(cost: FunctionCost) -> str:
    """Where the function begins; nothing without a source file."""
    return f" ({cost.file.rpartition('/')[2]}:{cost.line})" if cost.line else ""
