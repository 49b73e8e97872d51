"""The verbs as functions, shared by the command line, the evaluator and notebooks. Needs no torch."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from unstarve.advise.all_rules import advise
from unstarve.analyze.batch_production import RecordedTraining, recorded_trainings
from unstarve.analyze.chart_views import views_of
from unstarve.analyze.comparison import compare as _compare
from unstarve.analyze.diagnose import analyze_run
from unstarve.analyze.live_training import live_of
from unstarve.analyze.loader_summary import loader_key
from unstarve.analyze.step_series import series_of
from unstarve.analyze.timeline import WARMUP_STEPS, passed_ns, timelines_of
from unstarve.analyze.validation import ValidationLoop, validation_headline, validation_loops
from unstarve.analyze.verdict import Thresholds
from unstarve.checks.evidence.all_checks import health_of
from unstarve.errors import LogError, RunFileError, UnstarveError
from unstarve.model import Comparison, Diagnosis, Live, LoadLog, Phase, Run, RunState, State, WhatIf
from unstarve.predict.forecast import (
    REPORTED_WORKERS,
    WORKERS,
    LoaderModel,
    model_run,
    model_trainings,
    what_if,
)
from unstarve.predict.machine_times import on_its_machine
from unstarve.present.page import show_results_in_notebooks
from unstarve.record.follow import Follower
from unstarve.record.run_reader import read_run

__all__ = [
    "compare",
    "diagnose",
    "follow",
    "load_log_from_run",
    "load_run",
    "series_of",
    "views_of",
    "whatif",
]


show_results_in_notebooks()


def load_run(path: str | os.PathLike[str]) -> Run:
    """Read a run file. Raises `RunFileError` when it cannot be read."""
    return read_run(Path(path))


def follow(path: str | os.PathLike[str]) -> Iterator[Live]:
    """Snapshots of a run that is being recorded, one per request; ends when the run does.

    Sleep between two snapshots: they come as fast as they are requested, and each covers the last five
    seconds. Only what was written since the previous one is read. Raises `RunFileError` when the run
    cannot be read.
    """
    follower = Follower(Path(path))
    while True:
        now = live_of(follower.read())
        yield now
        if now.state is not RunState.RUNNING:
            return


@contextmanager
def reading(*runs: Run) -> Iterator[None]:
    """Turn errors that a damaged run file causes inside the block into `RunFileError`.

    A file is checked when it is read; this covers contradictions that only show up later.
    """
    try:
        yield
    except (UnstarveError, OSError):
        raise
    except Exception as error:
        damaged = [run.path for run in runs if run.damaged]
        if not damaged:
            raise
        raise RunFileError(f"{damaged[0]} is too damaged to analyze ({error!r})") from error


def diagnose(run: Run, thresholds: Thresholds | None = None, warmup_steps: int = WARMUP_STEPS) -> Diagnosis:
    """The full diagnosis of a run: its verdict, forecasts for other settings, and advice."""
    run = on_its_machine(run, may_measure=False)
    trainings = recorded_trainings(run, warmup_steps)
    diagnosis = _advised(run, analyze_run(run, thresholds, warmup_steps, trainings), trainings)
    loops = [] if run.kind == "ideal" else validation_loops(trainings, diagnosis.wall_s)
    for loop in loops:
        diagnosis = _with_validation(run, diagnosis, loop, thresholds, in_headline=loop is loops[0])
    return dataclasses.replace(diagnosis, health=health_of(run, diagnosis))


def _advised(run: Run, diagnosis: Diagnosis, trainings: Sequence[RecordedTraining]) -> Diagnosis:
    """Add forecasts and advice."""
    model = model_trainings(run, trainings)
    if isinstance(model, LoaderModel):
        diagnosis = dataclasses.replace(diagnosis, forecaster=model, whatif=what_if(model, REPORTED_WORKERS))
    advice, rejected = advise(diagnosis)
    return dataclasses.replace(diagnosis, advice=advice, rejected=rejected)


def _with_validation(
    run: Run, diagnosis: Diagnosis, loop: ValidationLoop, thresholds: Thresholds | None, *, in_headline: bool
) -> Diagnosis:
    """Add a validation loop's own verdict and advice to its loader's entry."""
    own = [loader for loader in diagnosis.loaders if loader_key(loader) == loop.loader]
    found = dataclasses.replace(analyze_run(run, thresholds, 0, loop.trainings), loaders=tuple(own))
    headline = validation_headline(loop, found)
    verdict = dataclasses.replace(found.verdict, headline=headline)
    waits = verdict.state in (State.STARVED, State.TIGHT)
    advice = _advised(run, found, loop.trainings).advice if waits else ()
    loaders = tuple(
        dataclasses.replace(loader, verdict=verdict, advice=advice) if loader in own else loader
        for loader in diagnosis.loaders
    )
    if in_headline:
        told = f"{diagnosis.verdict.headline} {headline}"
        diagnosis = dataclasses.replace(
            diagnosis, verdict=dataclasses.replace(diagnosis.verdict, headline=told)
        )
    return dataclasses.replace(diagnosis, loaders=loaders)


def whatif(
    run: Run | str | os.PathLike[str],
    workers: Sequence[int] = WORKERS,
    prefetch: Sequence[int] = (),
    batch_size: Sequence[int] = (),
) -> WhatIf:
    """Predicted throughput of a run's main loader, for all combinations of the given settings.

    Nothing is run: the recorded batches go through a simulated loader. `prefetch` and `batch_size` stay as
    recorded when they are not given; the recorded settings are always among the answers. Raises
    `NotPredictableError` when the run cannot be modelled.
    """
    recorded = run if isinstance(run, Run) else load_run(run)
    with reading(recorded):
        return what_if(model_run(on_its_machine(recorded, may_measure=True)), workers, prefetch, batch_size)


def compare(a: str | os.PathLike[str], b: str | os.PathLike[str], fail_if: Sequence[str] = ()) -> Comparison:
    """Compare two run files; `fail_if` as in ``unstarve compare --fail-if``."""
    runs = load_run(a), load_run(b)
    with reading(*runs):
        return _compare(*runs, fail_if)


def load_log_from_run(path: str | os.PathLike[str], phase: Phase = Phase.REAL) -> LoadLog:
    """The main loader's batches of a run file, for `plot_comparison`.

    `phase` chooses between the real and the replayed steps of an `unstarve ideal` run; a plain run has
    only real ones.
    """
    run = load_run(path)
    timelines = timelines_of(run, warmup_steps=0)
    wanted = phase if run.kind == "ideal" else Phase.REAL
    batches = [b for t in timelines[:1] for b in t.batches if b.phase is wanted and not b.settling]
    if not batches:
        raise LogError(f"{path} has no {wanted.value} batches to plot")
    own_ns = passed_ns(timelines[0].own)
    # A step needs the batch right before it; the first of an epoch or block has none.
    steps = [
        (a, b)
        for a, b in pairwise(batches)
        if (b.epoch, b.position) == (a.epoch, a.position + 1) and b.thinned is None
    ]
    batches = [batches[0], *(b for _, b in steps)]
    return LoadLog(
        label=Path(path).stem,
        mode="replay" if wanted is Phase.REPLAY else "log",
        load_s=tuple(batch.wait_ns / 1e9 for batch in batches),
        step_s=tuple((own_ns(b.got_ns) - own_ns(a.got_ns)) / 1e9 for a, b in steps),
        sizes=tuple(batch.size for batch in batches),
    )
