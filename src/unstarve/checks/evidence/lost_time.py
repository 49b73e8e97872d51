"""What the checks of a run ask of its diagnosis: what a trouble cost, and whether a change would help."""

from __future__ import annotations

from typing import Any

from unstarve.advise.diagnosis_facts import share_of
from unstarve.advise.framework_words import how_to_set
from unstarve.model import Advice, Cause, Diagnosis, LoaderSummary, State

LEAST_SHARE = 0.05
"""A trouble that costs a smaller share of the time is not worth reading about."""


def waits(d: Diagnosis) -> bool:
    """Whether training waits for data often enough to matter; `unstarve ideal` replays part of a run."""
    return d.kind == "run" and d.verdict.state in (State.STARVED, State.TIGHT)


def lost_share(d: Diagnosis) -> float:
    """The share of the time that is lost to waiting: the device's where it is known."""
    return (d.wait_share if d.stall_share is None else d.stall_share) or 0.0


def cost(d: Diagnosis, *causes: Cause) -> float:
    """The share of the measured time that these causes take."""
    return sum(share_of(d, cause) for cause in causes)


def advised(d: Diagnosis, *ids: str) -> Advice | None:
    """The advice with one of these ids; None if it is not given: no finding contradicts the advice."""
    return next((one for one in d.advice if one.id in ids), None)


def rejected(d: Diagnosis, id: str) -> bool:
    """Whether the report says that this change would not help."""
    return any(one.id == id for one in d.rejected)


def setting(loader: LoaderSummary, **arguments: Any) -> str:
    """The change of a loader's arguments, in one line, in the words of the framework that creates it."""
    return f"{how_to_set(loader.name, loader.maker, arguments)}."
