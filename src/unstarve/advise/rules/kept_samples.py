"""Rules about samples that are always the same: computed and read once, or in memory already."""

from __future__ import annotations

from unstarve.advise.diagnosis_facts import matters, stock_loader
from unstarve.advise.proposal import Edit, Proposal
from unstarve.advise.sample_facts import (
    collates_by_default,
    dataset_bytes,
    fits_into_memory,
    gathered_share,
    is_random,
    may_be_wrapped,
    uses_engine,
)
from unstarve.model import Cause, Demand, Diagnosis, LoaderSummary, Rejected, Scenario
from unstarve.words import duration, size

_LONG_FILL_S = 60.0
"""A cache that takes longer to fill is filled by the workers, in the first epoch."""
_MADE = (Cause.CPU, Cause.DISK, Cause.REMOTE, Cause.CONTENTION)
_COMBINED = (Cause.COLLATE, Cause.HANDOFF)
_DELIVERED = (*_COMBINED, Cause.SAMPLER, Cause.STARTUP)
_TORCHS_SAMPLERS = ("RandomSampler", "SequentialSampler")
_WHAT = "unstarve.CachedDataset"


def keep_in_memory(d: Diagnosis) -> Proposal | Rejected | None:
    """Samples that are the same in every epoch need to be read and computed only once."""
    demand, loader = d.demand, stock_loader(d)
    if demand is None or loader is None or not may_be_wrapped(loader):
        return None
    gathers = collates_by_default(loader)
    if not matters(d, *_MADE, *(_COMBINED if gathers else ())):
        return None
    random, size_bytes = is_random(loader), dataset_bytes(loader)
    if loader.dataset.get("plain") or loader.dataset.get("columns_in_memory") or random is None:
        return None
    if random:
        return Rejected("keep-in-memory", _WHAT, "samples are random, and a cache would freeze them")
    if size_bytes is None:
        return None
    fits = fits_into_memory(d, size_bytes)
    if not fits:
        free = d.system.get("free_bytes")
        reason = (
            f"needs {size(size_bytes)}, and {size(free)} are free" if free else "the free memory is unknown"
        )
        return Rejected("keep-in-memory", _WHAT, reason)
    fill_s = _fill_s(demand, loader)
    lazy = fill_s > _LONG_FILL_S
    return Proposal(
        "keep-in-memory",
        _WHAT,
        f"Keep the samples in memory ({size(size_bytes)}): {_WHAT}",
        f"fetching a batch takes {duration(demand.fetch_s)}, and samples are not random: "
        "each has to be made only once",
        Edit(
            _safe(loader),
            dataset='unstarve.CachedDataset({}, fill="lazy")' if lazy else f"{_WHAT}({{}})",
            engine=True,
        ),
        _gathered(demand, loader) if gathers else _cached(),
        worst=_cached(),
        note="The first epoch fills the cache: it pays off from the second epoch on."
        if lazy
        else f"Filling the cache takes about {duration(fill_s)}: it pays off from the second epoch on.",
        alone=True,
    )


def rows_in_memory(d: Diagnosis) -> Proposal | None:
    """Rows of tensors in memory need no worker and no collate function: a batch is one copy, or none."""
    demand, loader = d.demand, stock_loader(d)
    if demand is None or loader is None or not matters(d, *_MADE, *_DELIVERED):
        return None
    if not loader.dataset.get("columns_in_memory") or uses_engine(loader) or not collates_by_default(loader):
        return None
    making_s = demand.fetch_s + demand.collate_s + demand.handoff_s
    return Proposal(
        "rows-in-memory",
        "unstarve.DataLoader",
        "Take batches straight from memory: unstarve.DataLoader",
        f"the samples are rows of tensors in memory, but a batch takes {duration(making_s)}: it is fetched "
        "row by row",
        Edit(_safe(loader), engine=True),
        _gathered(demand, loader),
        worst=Scenario(workers=0, left={"cpu": 0.0, "handoff": 0.0}),
        alone=True,
    )


def _safe(loader: LoaderSummary) -> dict[str, bool]:
    """Batches in the order of the dataset would share its memory, and a loop may change them in place."""
    return {"copy": True} if loader.config.get("sampler") == "SequentialSampler" else {}


def _gathered(demand: Demand, loader: LoaderSummary) -> Scenario:
    """The training process copies rows of memory; nothing is fetched, collated or sent."""
    left = {"cpu": 0.0, "disk": 0.0, "remote": 0.0, "handoff": 0.0, "collate": gathered_share(loader, demand)}
    if loader.config.get("sampler") in _TORCHS_SAMPLERS:
        left["sampler"] = left["collate"]  # the order of an epoch is drawn at once
    return Scenario(workers=0, left=left)


def _cached() -> Scenario:
    """Samples come from memory; batches are made of them and delivered as before."""
    return Scenario(left={"cpu": 0.0, "disk": 0.0, "remote": 0.0})


def _fill_s(demand: Demand, loader: LoaderSummary) -> float:
    """Seconds in which one process reads every sample once."""
    fetch_s = demand.fetch_s - demand.queued_s
    return fetch_s / max((demand.samples or 1.0), 1.0) * float(loader.dataset["length"])
