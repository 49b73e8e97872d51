"""The classic workflow as one call: a sample, workers, batch sizes, prefetch and pinning, functions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from statistics import median
from types import SimpleNamespace
from typing import Any

import torch

from unstarve.advise.loader_call import loader_arguments
from unstarve.evaluate.evaluator.first_batches import shut_down
from unstarve.evaluate.handbook.find_workers import check, search
from unstarve.evaluate.handbook.findings import conclude
from unstarve.evaluate.handbook.memory_fit import room_bytes, that_fit
from unstarve.evaluate.handbook.sample_cost import function_profile, sample_cost
from unstarve.evaluate.handbook.telling import Telling
from unstarve.evaluate.handbook.trials import Trials, is_iterable
from unstarve.evaluate.random_state import random_state_kept
from unstarve.model import LoaderArguments, LoaderDiagnosis, StartCost, Tried

_UNTIL = {"sample": 0.05, "workers": 0.5, "batch": 0.7, "prefetch": 0.82, "pin": 0.9, "functions": 1.0}
"""Share of the time by which a part should be done: what one leaves over is the next one's."""
_FUNCTIONS = 0.05
"""Of the time."""
_BATCH_FACTORS = (0.5, 1, 2, 4)
_PREFETCH = (2, 4, 8)
_STARTS = 3
_FEWEST_STARTS = 2


def diagnose_dataloader(
    dataset: Any, batch_size: int = 32, *, budget_s: float = 30.0, progress: bool = True, **options: Any
) -> LoaderDiagnosis:
    """Find out how `dataset` wants to be loaded, in about `budget_s` seconds; ``print`` what comes back.

    In turn: what a single sample costs; how loading scales with workers and with the batch size; whether
    prefetching deeper, pinning (where there is a GPU) and keeping workers alive help; which functions of
    ``__getitem__`` take the time. The result ends with the recommended ``DataLoader(…)``: every argument in
    it was measured to help by more than the noise.

    `options` go to the loaders as they are; samples are also fetched in this process, random streams are put
    back, and exceptions of the dataset pass. Nothing trains meanwhile: to see a training with its loader,
    `unstarve run` it.
    """
    check(batch_size, budget_s)
    trials = Trials(dataset, options)
    with Telling(show=progress) as telling, random_state_kept(SimpleNamespace(dataset=dataset)):
        return _diagnose(trials, batch_size, budget_s, telling)


def _diagnose(trials: Trials, batch_size: int, budget_s: float, telling: Telling) -> LoaderDiagnosis:
    begin = trials.clock()

    def left_s(part: str) -> float:
        return max(begin + _UNTIL[part] * budget_s - trials.clock(), 0.0)

    def tried(
        settings: Sequence[LoaderArguments], seconds: float, device: str | None = None
    ) -> tuple[Tried, ...]:
        fit, _ = that_fit(settings, sample.sample_bytes, room_bytes())
        return trials.compare(fit, seconds, telling.say, device=device)

    telling.stage("1 of 5: single samples")
    sample = sample_cost(trials.dataset, left_s("sample"))
    telling.stage("2 of 5: numbers of workers")
    found = search(trials, batch_size, None, sample, left_s("workers"), telling)
    base = LoaderArguments(found.num_workers, batch_size)
    telling.stage("3 of 5: batch sizes")
    sizes = tried(_batch_sizes(trials.dataset, base), left_s("batch"))
    telling.stage("4 of 5: prefetching, pinning, keeping workers")
    deeper = [LoaderArguments(base.num_workers, batch_size, depth) for depth in _PREFETCH]
    prefetch = tried(deeper, left_s("prefetch")) if base.num_workers else ()
    pinning: tuple[Tried, ...] = ()
    if torch.cuda.is_available():
        both = [LoaderArguments(base.num_workers, batch_size, pin_memory=pin) for pin in (False, True)]
        pinning = tried(both, left_s("pin"), device="cuda")
    start = start_cost(trials, base, left_s("pin")) if base.num_workers else None
    telling.stage("5 of 5: functions")
    functions = function_profile(trials.dataset, min(left_s("functions"), _FUNCTIONS * budget_s))
    conclusion = conclude(sample, found, sizes, prefetch, pinning, start, functions)
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
        code=loader_arguments(conclusion.arguments, trials.options),
        notes=(*found.notes, *conclusion.notes),
    )


def _batch_sizes(dataset: Any, base: LoaderArguments) -> list[LoaderArguments]:
    """The user's own first: whatever the time suffices for, the others are compared with it."""
    own = base.batch_size or 1
    sizes = {max(round(own * factor), 1) for factor in _BATCH_FACTORS}
    with suppress(TypeError):  # a stream may have no length
        length = len(dataset)
        sizes = {size for size in sizes if is_iterable(dataset) or size <= max(length, own)}
    return [LoaderArguments(base.num_workers, size) for size in sorted(sizes, key=lambda s: (s != own, s))]


def start_cost(trials: Trials, setting: LoaderArguments, budget_s: float) -> StartCost:
    """Measured in turns: one epoch with new workers, one with workers that were kept."""
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
