"""Runs and diagnoses for the checks of a run: a trouble is planted as a share of the time."""

from __future__ import annotations

import dataclasses
from typing import Any

from fakes import FakeTraining, diagnosis_of, run_of
from unstarve.advise.all_rules import advise
from unstarve.checks.evidence.all_checks import health_of
from unstarve.model import Advice, Cause, Diagnosis, Finding, Loader, Run, Share, Spread, State


def spent(cause: Cause, share: float, *, advice: bool = True, **facts: Any) -> Diagnosis:
    """A diagnosis in which one cause takes this share of the time, with the advice that belongs to it.

    `facts` as in `diagnosis_of`.
    """
    state = State.STARVED if share >= 0.2 else State.TIGHT if share >= 0.05 else State.FED
    d = diagnosis_of(cause, **{"state": state, "free_s": 0.05 * (1 - share), **facts})
    budget = (Share(cause, 10 * share, share), Share(Cause.COMPUTE, 10 * (1 - share), 1 - share))
    loaders = tuple(dataclasses.replace(one, wait_ms=Spread(5, 5, 9, 20)) for one in d.loaders)
    d = dataclasses.replace(d, budget=budget, loaders=loaders)
    if not advice:
        return d
    given, rejected = advise(d)
    return dataclasses.replace(d, advice=given, rejected=rejected)


def with_advice(d: Diagnosis, id: str, **change: Any) -> Diagnosis:
    """The diagnosis with this advice alone."""
    return dataclasses.replace(d, advice=(Advice(id, f"{id} title", "why", change, None, ""),))


def epochs_run(epochs: int = 3, start_s: float = 0.5, batches: int = 20, **loader: Any) -> Run:
    """A training process whose epochs begin with a pause."""
    training = FakeTraining()
    for _ in range(epochs):
        training.epoch([(0.005, 0.02)] * batches, "loader", start_s)
    process = training.process()
    loaders = (Loader(0, "loader", "train.py:1", "DataLoader", **loader),)
    return run_of(dataclasses.replace(process, loaders=loaders))


def found(run: Run, d: Diagnosis) -> list[Finding]:
    """All findings about the run."""
    return list(health_of(run, d))


def ids(run: Run, d: Diagnosis) -> list[str]:
    """The ids of all findings about the run."""
    return [one.id for one in found(run, d)]
