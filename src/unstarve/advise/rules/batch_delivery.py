"""Rules about everything but samples: collating, the hand-off, pinning, copies, indices."""

from __future__ import annotations

from unstarve.advise.diagnosis_facts import (
    batch_bytes,
    costliest,
    matters,
    named,
    own_command,
    stock_loader,
    worker_loader,
)
from unstarve.advise.gain import UNCHANGED, cheaper
from unstarve.advise.proposal import Edit, Proposal
from unstarve.advise.sample_facts import takes_engine
from unstarve.model import Cause, Diagnosis, LoaderSummary, Scenario
from unstarve.words import duration, percent, size

_DEFAULT_COLLATES = ("default_collate", "default_convert")
_MAPPED_ANEW_BYTES = 32 << 20
"""glibc gives larger memory back to the system at once, and the kernel maps it anew for the next batch."""
_REUSED_BYTES_PER_S = 4e9
"""Between collating into fresh memory (about 2 GB/s on two cores) and into reused memory (about 10)."""
_KEPT_BYTES = 4 << 30
_OWN_ITERATOR = "StatefulDataLoader"
"""This class iterates without torch's method, which `--engine` replaces."""

# What the ring engine leaves. bench/handoff.py measured 0.015 (150 tensors) to 0.09 (20 MB) of the hand-off,
# with idle cores; the worst case allows for busy ones. What it leaves of pinning is an assumption.
_RING = Scenario(left={"handoff": 0.05, "pin": 0.1})
_RING_AT_WORST = Scenario(left={"handoff": 0.4})
_RING_AT_BEST = Scenario(left={"handoff": 0.015, "pin": 0.0})
_COLLATED_IN_PLACE = 0.5
"""Share of collating that is left where samples go straight into reused memory: 0.47 of its CPU time for 60
small tensors, 0.55 for 6 MB. No tensor is made for each field, and no page of memory is fresh."""


def ring_engine(d: Diagnosis) -> Proposal | None:
    """Torch maps fresh shared memory for every batch; reused memory costs a message of a few bytes."""
    demand, loader = d.demand, worker_loader(d)
    if demand is None or loader is None or not demand.workers or "engine" in loader.config:
        return None
    if not matters(d, Cause.HANDOFF, Cause.PIN, Cause.COLLATE) or loader.kind == _OWN_ITERATOR:
        return None
    nbytes = batch_bytes(d)
    of_size = "" if nbytes is None else f" of {size(nbytes)}"
    pinning = f" and pinning it {duration(demand.pin_s)}" if demand.pin_s > demand.handoff_s / 4 else ""
    return Proposal(
        "ring-engine",
        "unstarve.DataLoader",
        "Hand batches over in reused memory: unstarve.DataLoader",
        f"the hand-off of a batch{of_size} takes {duration(demand.handoff_s)}{pinning}, making it "
        f"{duration(demand.fetch_s + demand.collate_s)}",
        Edit(engine=takes_engine(loader)),
        _collated_in_place(_RING, loader),
        # Workers that send less make more, which a step without cores feels.
        worst=UNCHANGED if matters(d, Cause.CONTENTION) else _RING_AT_WORST,
        best=_collated_in_place(_RING_AT_BEST, loader),
        command=f"unstarve run --engine auto {own_command(d)}",
    )


def _collated_in_place(ring: Scenario, loader: LoaderSummary) -> Scenario:
    """The same where torch's own collate is replaced, too; a function of the user's runs as it is."""
    if loader.config.get("collate_fn") not in (None, *_DEFAULT_COLLATES):
        return ring
    return Scenario(left={**ring.left, "collate": _COLLATED_IN_PLACE})


def no_workers(d: Diagnosis) -> Proposal | None:
    """Batches of data that is already in memory are made faster than a worker can send them."""
    demand, loader = d.demand, worker_loader(d)
    if demand is None or loader is None or not demand.workers or not matters(d, Cause.HANDOFF):
        return None
    if demand.fetch_s - demand.queued_s + demand.collate_s > demand.handoff_s:
        return None
    return Proposal(
        "no-workers",
        "no workers",
        "Use no workers: making a batch is cheaper than its hand-off",
        f"making a batch takes {duration(demand.fetch_s + demand.collate_s)}, its hand-off "
        f"{duration(demand.handoff_s)}",
        Edit({"num_workers": 0}),
        Scenario(workers=0),
        # At best, the training process reuses its memory and copies with several threads.
        best=Scenario(workers=0, left={"cpu": 0.3, "collate": 0.3}),
    )


def cheaper_collate(d: Diagnosis) -> Proposal | None:
    """A ``collate_fn`` of the user's can only be made cheaper by its author."""
    demand, loader = d.demand, stock_loader(d)
    if demand is None or loader is None or not matters(d, Cause.COLLATE):
        return None
    name, found = loader.config.get("collate_fn"), costliest(d, Cause.COLLATE)
    if name in (None, *_DEFAULT_COLLATES):
        title = "Return fewer, larger tensors per sample: collating stacks them one by one"
    else:
        title = f"Make {name}() cheaper, or move its work to __getitem__()"
    return Proposal(
        "cheaper-collate",
        "a cheaper collate_fn",
        title,
        f"collating takes {duration(demand.collate_s)} of CPU time per batch, fetching "
        f"{duration(demand.fetch_s)}" + (f"; top functions: {named(found)}" if found else ""),
        Edit(),
        cheaper("collate", 0.5),
        worst=UNCHANGED,
        best=cheaper("collate", 0.0),
    )


def keep_large_memory(d: Diagnosis) -> Proposal | None:
    """Fresh memory costs a page fault every 4 KB, more than filling it does."""
    demand, loader, nbytes = d.demand, stock_loader(d), batch_bytes(d)
    if demand is None or loader is None or demand.workers or nbytes is None or not demand.collate_s:
        return None
    if demand.collate_s < demand.cpu_s or nbytes < _MAPPED_ANEW_BYTES * max(loader.tensors or 1, 1):
        return None
    if nbytes > _REUSED_BYTES_PER_S * demand.collate_s:
        return None
    kept = f"MALLOC_MMAP_THRESHOLD_={_KEPT_BYTES} MALLOC_TRIM_THRESHOLD_={_KEPT_BYTES}"
    return Proposal(
        "keep-large-memory",
        "memory that malloc keeps",
        "Let malloc keep the memory of a batch instead of returning it",
        f"collating a batch of {size(nbytes)} takes {duration(demand.collate_s)}: for every batch, the "
        f"kernel maps blocks above {size(_MAPPED_ANEW_BYTES)} again, page by page",
        Edit(),
        cheaper("collate", 0.4),
        worst=UNCHANGED,
        best=cheaper("collate", 0.2),
        command=f"{kept} {own_command(d, python=True)}",
    )


def unpinned(d: Diagnosis) -> Proposal | None:
    """The pin thread copies every batch once more, and takes the interpreter lock from training."""
    demand, loader = d.demand, stock_loader(d)
    if demand is None or loader is None or not matters(d, Cause.PIN) or not loader.config.get("pin_memory"):
        return None
    return Proposal(
        "no-pinning",
        "pin_memory=False",
        "Do not pin batches: it costs more than it saves",
        f"pinning takes {duration(demand.pin_s)} per batch, in the training process",
        Edit({"pin_memory": False}),
        cheaper("pin", 0.0),
        worst=UNCHANGED,
        note="Copies to the device then come from pageable memory.",
    )


def cheaper_sampler(d: Diagnosis) -> Proposal | None:
    """The sampler runs in the training process, so all of its time is waiting."""
    demand, loader = d.demand, stock_loader(d)
    if demand is None or loader is None or not matters(d, Cause.SAMPLER):
        return None
    spent = d.waits.get(Cause.SAMPLER, 0.0) / (sum(d.waits.values()) or 1.0)
    return Proposal(
        "cheaper-sampler",
        "a cheaper sampler",
        f"Draw the indices of {_sampler(loader)} in bulk, only as many as an epoch uses",
        f"the sampler takes {duration(demand.sampler_s)} per batch and {percent(spent)} of the waiting",
        Edit(),
        # From the waits: what torch draws ahead in ``iter()`` counts for the sampler, too.
        {Cause.SAMPLER: 0.9},
        worst={Cause.SAMPLER: 0.5},
        best={Cause.SAMPLER: 1.0},
    )


def _sampler(loader: LoaderSummary) -> str:
    """The name of the class that draws the indices."""
    own = loader.config.get("batch_sampler")
    return str(own if own not in (None, "BatchSampler") else loader.config.get("sampler") or "the sampler")
