"""Rules about when batches arrive: epoch starts, late batches, tight margins; and about the loop itself."""

from __future__ import annotations

from pathlib import PurePath

from unstarve.advise.diagnosis_facts import (
    costliest,
    matters,
    named,
    share_of,
    torch_at_least,
    worker_loader,
    workers_of,
)
from unstarve.advise.gain import UNCHANGED, cheaper, free_step_s, making_s
from unstarve.advise.proposal import Edit, Proposal
from unstarve.model import Cause, Diagnosis, Rejected, Scenario, SlowSample, State
from unstarve.words import duration, percent, size

_MOST_PREFETCH = 16
_STOCK_PREFETCH = 2


def persistent_workers(d: Diagnosis) -> Proposal | Rejected | None:
    """Without persistent workers, every epoch ends its workers and starts new ones."""
    loader = worker_loader(d)
    if loader is None or not matters(d, Cause.STARTUP) or loader.epochs < 2 or not workers_of(d):
        return None
    if loader.config.get("persistent_workers"):
        return Rejected("persistent-workers", "persistent_workers=True", "is set already")
    return Proposal(
        "persistent-workers",
        "persistent_workers=True",
        "Keep workers alive between epochs",
        f"each of {loader.epochs} epochs started new workers, which took "
        f"{duration(loader.startup_s)} in total",
        Edit({"persistent_workers": True}),
        Scenario(persistent=True),
    )


def no_workers_to_start(d: Diagnosis) -> Proposal | None:
    """Rows of tensors need no workers: indexing the tensors makes the same batch."""
    loader = worker_loader(d)
    if loader is None or not matters(d, Cause.STARTUP) or not workers_of(d):
        return None
    if not loader.dataset.get("columns_in_memory") or loader.config.get("collate_fn") != "default_collate":
        return None
    return Proposal(
        "no-workers-to-start",
        "unstarve.DataLoader without workers",
        "Index the tensors directly, without workers: unstarve.DataLoader",
        f"starting workers took {duration(loader.startup_s)} in total, and the samples are rows of tensors",
        Edit({"num_workers": 0}, engine=True),
        Scenario(workers=0, left={"cpu": 0.1, "collate": 0.1}),
        worst=Scenario(workers=0),
    )


def lighter_dataset(d: Diagnosis) -> Proposal | None:
    """Without fork, the dataset is pickled and sent to each worker, however large it is."""
    loader = worker_loader(d)
    if loader is None or not matters(d, Cause.STARTUP) or not workers_of(d):
        return None
    method = loader.config.get("multiprocessing_context")
    name, nbytes = loader.dataset.get("largest_attribute"), loader.dataset.get("largest_bytes")
    if method not in ("spawn", "forkserver") or not name or not isinstance(nbytes, int):
        return None
    return Proposal(
        "lighter-dataset",
        "a smaller dataset object",
        f"Load {name} in the worker, on first use, not in __init__()",
        f"with {method}, the dataset is pickled for each of {workers_of(d)} workers, and {name} is "
        f"{size(nbytes)} of it; starts took {duration(loader.startup_s)}",
        Edit(),
        cheaper("start", 0.5),
        worst=UNCHANGED,
        best=cheaper("start", 0.1),
    )


def any_order(d: Diagnosis) -> Proposal | None:
    """Batches are delivered in order: a late one holds back finished ones."""
    loader = worker_loader(d)
    if loader is None or not matters(d, Cause.ORDER) or not torch_at_least(d, 2, 6) or workers_of(d) < 2:
        return None
    if loader.config.get("in_order") is False:
        return None
    return Proposal(
        "any-order",
        "in_order=False",
        "Take batches as they finish, not in order",
        f"{_tail(d)} and hold back finished ones",
        Edit({"in_order": False}),
        Scenario(in_order=False),
        note="The order of batches will then vary between runs.",
    )


def level_samples(d: Diagnosis) -> Proposal | None:
    """Slow samples spread over all batches slow down every batch."""
    if d.demand is None or not matters(d, Cause.ORDER):
        return None
    slow = ", ".join(f"{_sample(sample)} ({duration(sample.ms / 1e3)})" for sample in d.slow_samples[:3])
    return Proposal(
        "level-samples",
        "evened-out samples",
        "Prepare the slow samples in advance, or batch them together",
        _tail(d) + (f"; the slowest samples are {slow}" if slow else ""),
        Edit(),
        Scenario(evened=0.5),
        worst=UNCHANGED,
        best=Scenario(evened=1.0),
    )


def _sample(sample: SlowSample) -> str:
    """Its file if that is known, else its index."""
    return str(sample.index) if sample.file is None else PurePath(sample.file).name


def deeper_prefetch(d: Diagnosis) -> Proposal | None:
    """Workers that keep up on average, but not always, need more batches ready."""
    demand, loader, free = d.demand, worker_loader(d), free_step_s(d)
    if demand is None or loader is None or not free or not demand.workers:
        return None
    keeps_up = making_s(demand) / demand.workers <= free
    if not matters(d, Cause.ORDER) and not (d.verdict.state is State.TIGHT and keeps_up):
        return None
    if matters(d, Cause.STARTUP, Cause.SAMPLER) and not matters(d, Cause.ORDER):
        return None  # more batches ready help with neither
    now = loader.config.get("prefetch_factor")
    now = now if isinstance(now, int) else _STOCK_PREFETCH
    if now >= _MOST_PREFETCH:
        return None
    depth = min(2 * now, _MOST_PREFETCH)
    return Proposal(
        "deeper-prefetch",
        f"prefetch_factor={depth}",
        f"Keep more batches ready: prefetch_factor={depth}",
        f"{_tail(d)}, with {now} batches prefetched per worker",
        Edit({"prefetch_factor": depth}),
        Scenario(prefetch=depth),
    )


def lighter_loop(d: Diagnosis) -> Proposal | None:
    """Work in the loop between batches keeps the device waiting just as missing data would."""
    if d.verdict.cause is not Cause.HOST:
        return None
    found = costliest(d, Cause.HOST)
    what = f"{found[0].name}()" if found else "logging, metrics and .item()"
    why = f"the loop's own Python takes {percent(share_of(d, Cause.HOST))} of the time"
    return Proposal(
        "lighter-loop",
        "a lighter loop",
        f"Move {what} out of the training loop",
        why + (f"; top functions by share of the steps: {named(found)}" if found else ""),
        Edit(),
        None,  # the step without it was not measured
    )


def _tail(d: Diagnosis) -> str:
    if d.demand is None:
        return "some batches are late"
    tail = d.demand.tail
    times = "more than 100" if tail > 100 else f"{tail:.0f}" if tail >= 10 else f"{tail:.1f}"
    return f"the slowest batches take {times}× as long as a typical one"
