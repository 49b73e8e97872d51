"""The classic workflow in one call: samples, workers, batch sizes, prefetching, pinning, functions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from types import SimpleNamespace
from typing import Any

import torch

from unstarve.advise.loader_call import loader_arguments
from unstarve.collect.random_state import random_state_kept
from unstarve.collect.torch_iterator import shut_down
from unstarve.evaluate.handbook.find_workers import check, room_bytes, search, that_fit
from unstarve.evaluate.handbook.loader_advice import advice_for, dataset_name
from unstarve.evaluate.handbook.sample_cost import function_profile, sample_cost
from unstarve.evaluate.handbook.setting_trials import (
    Trials,
    are_compared,
    beats,
    fastest,
    fewest_of_the_fastest,
    is_iterable,
    ratio,
)
from unstarve.model import (
    LoaderArguments,
    LoaderDiagnosis,
    ProfiledFunction,
    SampleCost,
    StartCost,
    Tried,
    WorkerSearch,
)
from unstarve.progress import StageProgress, stages, stderr_console
from unstarve.words import duration, percent, rate, size, times

_UNTIL = {"sample": 0.05, "workers": 0.45, "batch": 0.62, "prefetch": 0.74, "pin": 0.82, "functions": 0.9}
"""Share of the time by which a part should be done; the next part gets what it leaves over."""
_FUNCTIONS, _ADVISING = 0.05, 0.1
"""Shares of the time for profiling functions and for advice."""
_MEASURED = ("batch_size", "num_workers", "prefetch_factor", "pin_memory", "persistent_workers")
_BATCH_FACTORS = (0.5, 1, 2, 4)
_PREFETCH = (2, 4, 8)
_STARTS = 3
_FEWEST_STARTS = 2


def diagnose_dataloader(
    dataset: Any, batch_size: int = 32, *, budget_s: float = 30.0, progress: bool = True, **options: Any
) -> LoaderDiagnosis:
    """Find the best way to load `dataset` in about `budget_s` seconds; ``print`` the result.

    It measures the cost of a single sample; how loading scales with workers and with the batch size; whether
    deeper prefetching, pinning (with a GPU) and persistent workers help; and which functions of
    ``__getitem__`` take the time. The result ends with the recommended ``DataLoader(…)``: every argument in
    it was measured to help by more than the noise. Below it is what else would make loading faster, as in a
    report of `unstarve run`.

    `options` are passed to the loaders. Samples are also fetched in this process; random streams are
    restored, and exceptions of the dataset propagate. Nothing trains meanwhile: to see a loader within its
    training, use `unstarve run`.
    """
    check(batch_size, budget_s)
    trials = Trials(dataset, options)
    with (
        stages(stderr_console() if progress else None) as shown,
        random_state_kept(SimpleNamespace(dataset=dataset)),
    ):
        return _diagnose(trials, batch_size, budget_s, shown, dataset_name(diagnose_dataloader.__name__))


def _diagnose(
    trials: Trials, batch_size: int, budget_s: float, shown: StageProgress, name: str
) -> LoaderDiagnosis:
    begin = trials.clock()

    def left_s(part: str) -> float:
        return max(begin + _UNTIL[part] * budget_s - trials.clock(), 0.0)

    def tried(
        settings: Sequence[LoaderArguments], seconds: float, device: str | None = None
    ) -> tuple[Tried, ...]:
        fit, _ = that_fit(settings, sample.sample_bytes, room_bytes())
        return trials.compare(fit, seconds, shown.detail, device=device)

    shown.stage("1 of 6: single samples")
    sample = sample_cost(trials.dataset, left_s("sample"))
    shown.stage("2 of 6: numbers of workers")
    found = search(trials, batch_size, None, sample, left_s("workers"), shown)
    base = LoaderArguments(found.num_workers, batch_size)
    shown.stage("3 of 6: batch sizes")
    sizes = tried(_batch_sizes(trials.dataset, base), left_s("batch"))
    shown.stage("4 of 6: prefetching, pinning, keeping workers")
    deeper = [LoaderArguments(base.num_workers, batch_size, depth) for depth in _PREFETCH]
    prefetch = tried(deeper, left_s("prefetch")) if base.num_workers else ()
    pinning: tuple[Tried, ...] = ()
    if torch.cuda.is_available():
        both = [LoaderArguments(base.num_workers, batch_size, pin_memory=pin) for pin in (False, True)]
        pinning = tried(both, left_s("pin"), device="cuda")
    start = start_cost(trials, base, left_s("pin")) if base.num_workers else None
    shown.stage("5 of 6: functions")
    functions = function_profile(trials.dataset, min(left_s("functions"), _FUNCTIONS * budget_s))
    conclusion = conclude(sample, found, sizes, prefetch, pinning, start, functions)
    shown.stage("6 of 6: what else would help")
    code = loader_arguments(conclusion.arguments, trials.options, name)
    chosen = LoaderArguments(
        base.num_workers,
        batch_size,
        conclusion.arguments.get("prefetch_factor"),
        pin_memory=bool(conclusion.arguments.get("pin_memory")),
    )
    advice = advice_for(trials, chosen, code, _ADVISING * budget_s, measured=_MEASURED)
    return LoaderDiagnosis(
        headline=conclusion.headline,
        sample=sample,
        workers=found,
        batch_sizes=sizes,
        prefetch=prefetch,
        pinning=pinning,
        start=start,
        functions=functions or (),
        findings=conclusion.findings,
        arguments=conclusion.arguments,
        code=code,
        notes=(*found.notes, *conclusion.notes),
        advice=advice,
    )


def _batch_sizes(dataset: Any, base: LoaderArguments) -> list[LoaderArguments]:
    """The user's own size first: it is measured in any case, and the others are compared with it."""
    own = base.batch_size or 1
    sizes = {max(round(own * factor), 1) for factor in _BATCH_FACTORS}
    with suppress(TypeError):  # an iterable dataset may have no length
        length = len(dataset)
        sizes = {size for size in sizes if is_iterable(dataset) or size <= max(length, own)}
    return [LoaderArguments(base.num_workers, size) for size in sorted(sizes, key=lambda s: (s != own, s))]


def start_cost(trials: Trials, setting: LoaderArguments, budget_s: float) -> StartCost:
    """Time the first batch of an epoch in turns: with new workers, with persistent ones."""
    fresh: list[float] = []
    kept: list[float] = []
    deadline = trials.clock() + budget_s
    lasting = trials.loader(setting, persistent_workers=True)
    try:
        trials.start_s(lasting)
        while len(fresh) < (_STARTS if trials.clock() < deadline else _FEWEST_STARTS):
            fresh.append(trials.start_s(trials.loader(setting)))
            kept.append(trials.start_s(lasting))
    finally:
        iterator = getattr(lasting, "_iterator", None)
        if iterator is not None:
            shut_down(iterator, lasting)
    return StartCost(median(fresh), median(kept), shown=min(fresh) > max(kept))


_MOSTLY_CPU, _HARDLY_CPU = 0.8, 0.5
_UNEVEN = 5.0
"""The slowest sample over the typical one: from here on it is mentioned."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """Findings in words, and the recommended arguments."""

    headline: str
    findings: tuple[str, ...]
    arguments: dict[str, Any]
    notes: tuple[str, ...]


def conclude(
    sample: SampleCost,
    workers: WorkerSearch,
    sizes: Sequence[Tried],
    prefetch: Sequence[Tried],
    pinning: Sequence[Tried],
    start: StartCost | None,
    functions: Sequence[ProfiledFunction] | None,
) -> Conclusion:
    """Turn the measurements into findings and arguments; only arguments measured to help are included."""
    findings = [_of_samples(sample), workers.headline]
    arguments: dict[str, Any] = {
        "batch_size": workers.arguments["batch_size"],
        "num_workers": workers.num_workers,
    }
    notes: list[str] = []
    for what, tried in (("batch sizes", sizes), ("prefetch depths", prefetch), ("pinning", pinning)):
        if tried and not are_compared(tried):
            notes.append(f"there was no time to compare {what}; increase budget_s")
    if are_compared(sizes):
        findings.append(_of_sizes(sizes))
    if are_compared(prefetch):
        deeper = fewest_of_the_fastest(prefetch)
        if deeper is not prefetch[0]:
            depth = deeper.setting.prefetch_factor
            findings.append(
                f"prefetch_factor={depth} loads {times(ratio(deeper, prefetch[0]), 2)} as fast as 2."
            )
            arguments["prefetch_factor"] = depth
        else:
            findings.append("Prefetching more than 2 batches per worker is not faster.")
    if start is not None:
        findings.append(_of_start(start))
        if start.shown:
            arguments["persistent_workers"] = True
    if are_compared(pinning):
        helps = beats(pinning[1], pinning[0])
        gain = times(ratio(pinning[1], pinning[0]), 2)
        findings.append(f"With pin_memory=True batches reach the GPU {gain} as fast{_unless(helps)}.")
        if helps:
            arguments["pin_memory"] = True
    if not pinning:
        notes.append("no GPU here: pin_memory=True was not tried and may help on a machine with one")
    if functions is None:
        notes.append("functions are not listed: another profiler is running")
    elif functions:
        top = functions[0]
        findings.append(f"Most of a sample's time, {percent(top.share)}, is spent in {top.name}.")
    return Conclusion(_headline(sample, workers), tuple(findings), arguments, tuple(notes))


def _headline(sample: SampleCost, workers: WorkerSearch) -> str:
    best = fastest(workers.tried)
    return f"{_kind(sample)} {workers.headline} The highest rate measured is {rate(best.rate)} samples/s."


def _kind(sample: SampleCost) -> str:
    if sample.cpu_share >= _MOSTLY_CPU:
        return "Fetching a sample is CPU work."
    if sample.cpu_share <= _HARDLY_CPU:
        return "Fetching a sample is mostly waiting: more workers than cores help."
    return "Fetching a sample is part CPU work, part waiting."


def _of_samples(sample: SampleCost) -> str:
    holds = "" if sample.sample_bytes is None else f" and holds {size(sample.sample_bytes)}"
    told = f"A sample takes {duration(sample.typical_s)}, {percent(sample.cpu_share)} of it on a CPU,{holds}"
    told = told.rstrip(",")
    if sample.longest_s >= _UNEVEN * sample.typical_s:
        which = "" if sample.slowest is None else f" (index {sample.slowest})"
        told += f"; the slowest of {sample.samples} took {duration(sample.longest_s)}{which}"
    return f"{told}."


def _of_sizes(sizes: Sequence[Tried]) -> str:
    own, best = sizes[0], fastest(sizes)
    if best is own or not beats(best, own):
        return f"No other batch size loads more samples per second than {own.setting.batch_size}."
    return (
        f"Batches of {best.setting.batch_size} load {times(ratio(best, own), 2)} as many samples per second "
        f"as batches of {own.setting.batch_size}; a larger batch also changes how training converges."
    )


def _of_start(start: StartCost) -> str:
    if not start.shown:
        return "Keeping workers alive between epochs saves no measurable time."
    return (
        f"Keeping workers alive saves {duration(start.fresh_s - start.kept_s)} at the start of "
        f"every epoch after "
        "the first."
    )


def _unless(helps: bool) -> str:
    return "" if helps else ", which is within noise"
