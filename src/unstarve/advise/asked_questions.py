"""What readers ask when no advice mentions it: would more workers help?"""

from __future__ import annotations

from unstarve.advise.diagnosis_facts import matters, usable_cores, worker_loader
from unstarve.advise.gain import making_s
from unstarve.intervals import WORTH_IT
from unstarve.model import Cause, Diagnosis, Rejected

_CHEAP_S = 5e-3
"""A batch that is made this fast is hardly cheaper to receive than to make."""
_LIMITS = {
    Cause.HANDOFF: "the hand-off of each batch is the limit",
    Cause.STARTUP: "each of them takes time to start",
    Cause.SAMPLER: "the sampler runs in the training process",
    Cause.PIN: "pinning happens in the training process",
    Cause.COPY: "copying to the device is the limit",
    Cause.DISK: "the disk is the limit",
    Cause.REMOTE: "they wait for each other",
}


def about_workers(d: Diagnosis) -> Rejected | None:
    """Why more workers are not advised; None when they might help, or when nobody can tell."""
    demand = d.demand
    if demand is None or worker_loader(d) is None or d.whatif is None:
        return None
    more = [one.speedup for one in d.whatif.curve if one.setting.workers > demand.workers]
    if not more or max(more) >= WORTH_IT:
        return None
    reason = _reason(d)
    what = "more workers" if demand.workers else "workers"
    return None if reason is None else Rejected("more-workers", what, f"would not help, {reason}")


def _reason(d: Diagnosis) -> str | None:
    demand, cores = d.demand, usable_cores(d)
    if demand is None:
        return None
    if not demand.workers and making_s(demand) < _CHEAP_S:
        return "a batch is as cheap to make as to receive from a worker"
    if cores is not None and matters(d, Cause.CPU, Cause.COLLATE, Cause.CONTENTION):
        return f"{cores:g} cores are busy" if cores != 1 else "there is only one core"
    return _LIMITS.get(d.verdict.cause)
