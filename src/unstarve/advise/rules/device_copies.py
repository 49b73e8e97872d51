"""Rules about copies to the device that are on the critical path."""

from __future__ import annotations

import re

from unstarve.advise.diagnosis_facts import stock_loader
from unstarve.advise.proposal import Edit, Proposal
from unstarve.model import Cause, CopyKind, Diagnosis, LoaderSummary
from unstarve.words import percent

_WORTH = 0.05
"""Smallest share of the time."""
# On an H200 pinned copies ran at 61 GB/s and pageable ones at 20.
_FASTER_PINNED = 0.67
_HIDDEN = 0.9
"""Share of the copying that is over when training asks, of what one step can hide."""


def pinned_copies(d: Diagnosis) -> Proposal | None:
    """A copy from pageable memory is slower, and blocks the training loop until it is done."""
    loader, share = stock_loader(d), _critical(d, memory="pageable")
    if loader is None or not _matters(d, share) or loader.config.get("pin_memory"):
        return None
    return Proposal(
        "pin-memory",
        "pin_memory=True",
        "Pin the batches, and copy them with .to(device, non_blocking=True)",
        f"copies from pageable memory are on the critical path {percent(_cost(d, share))} of the time",
        Edit({"pin_memory": True}),
        {Cause.COPY: _FASTER_PINNED * share},
        worst={},
        best={Cause.COPY: share},
    )


def copies_that_do_not_block(d: Diagnosis) -> Proposal | None:
    """The device waits for what the host launches after a copy that it waited for."""
    share = _critical(d, memory="pinned", blocking=True)
    if not _matters(d, share):
        return None
    return Proposal(
        "non-blocking",
        "non_blocking=True",
        "Copy batches with .to(device, non_blocking=True): they are in pinned memory already",
        f"blocking copies are on the critical path {percent(_cost(d, share))} of the time",
        Edit(),
        None,  # the copy itself takes as long as before: what is gained lies beside it
    )


def copies_beside_the_step(d: Diagnosis) -> Proposal | None:
    """The next batch can be copied on another stream while this one is computed."""
    loader, share = stock_loader(d), _critical(d)
    if loader is None or loader.maker is not None or not _matters(d, share):
        return None
    return Proposal(
        "to-device",
        "unstarve.to_device",
        "Copy the next batch while this one is computed: unstarve.to_device",
        f"copies from the host are on training's own stream {percent(_cost(d, share))} of the time",
        Edit(after=(f'for batch in unstarve.to_device({_variable(loader)}, "cuda"):',)),
        {Cause.COPY: _HIDDEN * _hideable(d)},
        worst={},
        best={Cause.COPY: _hideable(d)},
    )


def _hideable(d: Diagnosis) -> float:
    """The part of the copies that fits beside the rest of a step. `to_device` copies from pinned memory."""
    copied = _cost(d, 1.0)
    pinned = copied * (1 - _FASTER_PINNED * _critical(d, memory="pageable"))
    return (1 - max(1 - copied, pinned)) / copied if copied else 0.0


def _critical(d: Diagnosis, *, memory: str | None = None, blocking: bool | None = None) -> float:
    """The part of the time for copies on the critical path that goes to copies of this kind."""
    critical = [] if d.copies is None else [kind for kind in d.copies.kinds if not kind.overlapped]
    total_s = sum(kind.seconds for kind in critical)
    return sum(k.seconds for k in critical if _is(k, memory, blocking)) / total_s if total_s else 0.0


def _is(kind: CopyKind, memory: str | None, blocking: bool | None) -> bool:
    return memory in (None, kind.memory) and blocking in (None, kind.blocking)


def _cost(d: Diagnosis, share: float) -> float:
    """Share of all the time."""
    return 0.0 if d.copies is None else d.copies.share * share


def _matters(d: Diagnosis, share: float) -> bool:
    return _cost(d, share) >= _WORTH


def _variable(loader: LoaderSummary) -> str:
    """The name that the script gives the loader."""
    assigned = re.fullmatch(r"\s*(\w+)\s*=\s*", loader.statement)
    return assigned[1] if assigned else loader.name if loader.name.isidentifier() else "loader"
