"""Questions that several rules ask of a diagnosis, and numbers as their sentences say them."""

from __future__ import annotations

from unstarve.model import Cause, Diagnosis, FunctionCost, LoaderSummary
from unstarve.words import percent

_WORTH = 0.2
"""Share of the waiting from which on a cause deserves advice."""
_MOST_LOCAL_RANKS = 8
"""Ranks of one machine share its cores; nobody recorded how many machines there were."""
_MOST_NAMED = 3


def matters(d: Diagnosis, *causes: Cause) -> bool:
    """Whether enough of the waiting has one of these causes."""
    waited_s = sum(d.waits.values())
    return d.verdict.cause in causes or sum(d.waits.get(c, 0.0) for c in causes) > _WORTH * waited_s


def stock_loader(d: Diagnosis) -> LoaderSummary | None:
    """The loader that advice is about; None when it is no ``DataLoader``."""
    named = [x for x in d.loaders if d.demand is not None and x.name == d.demand.loader]
    found = next(iter(named or d.loaders), None)
    return found if found is not None and "num_workers" in found.config else None


def workers_of(d: Diagnosis) -> int:
    """How many worker processes the loader has."""
    if d.demand is not None:
        return d.demand.workers
    loader = stock_loader(d)
    return 0 if loader is None else int(loader.config["num_workers"])


def usable_cores(d: Diagnosis) -> float | None:
    """Cores' worth of time that one rank can have: affinity and quota, shared by the ranks of a machine."""
    limits = [float(d.system[key]) for key in ("cores", "quota_cores") if d.system.get(key)]
    return max(min(limits) / min(max(d.ranks, 1), _MOST_LOCAL_RANKS), 1.0) if limits else None


def batch_bytes(d: Diagnosis) -> float | None:
    """Bytes of a batch's tensors, on average."""
    loader = stock_loader(d)
    return loader.bytes / loader.steps if loader is not None and loader.bytes and loader.steps else None


def is_iterable(loader: LoaderSummary) -> bool:
    """Whether the dataset is an ``IterableDataset``: torch then gives it this sampler."""
    return loader.config.get("sampler") == "_InfiniteConstantSampler"


def torch_at_least(d: Diagnosis, *wanted: int) -> bool:
    """Whether the run's torch is of this version or newer; no when it is not known."""
    words = d.versions.get("torch", "").split("+")[0].split(".")[: len(wanted)]
    return all(word.isdigit() for word in words) and tuple(map(int, words)) >= wanted


def costliest(d: Diagnosis, where: Cause) -> tuple[FunctionCost, ...]:
    """The few functions that most of the time of this kind goes to."""
    found = [cost for cost in d.functions if cost.where is where]
    return tuple(sorted(found, key=lambda cost: -cost.seconds)[:_MOST_NAMED])


def named(costs: tuple[FunctionCost, ...]) -> str:
    """``decode (data.py:17) 61 %, crop (data.py:30) 22 %``."""
    return ", ".join(f"{c.name} ({c.file.rpartition('/')[2]}:{c.line}) {percent(c.share)}" for c in costs)
