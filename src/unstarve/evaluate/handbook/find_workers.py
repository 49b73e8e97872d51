"""How many workers does this dataset need? Measured, in turns, in about half a minute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from unstarve.advise.loader_call import loader_arguments
from unstarve.errors import UsageError
from unstarve.evaluate.handbook.findings import fastest, least_of_the_fastest, ratio, worker_candidates
from unstarve.evaluate.handbook.memory_fit import room_bytes, that_fit
from unstarve.evaluate.handbook.sample_cost import sample_cost
from unstarve.evaluate.handbook.telling import Telling
from unstarve.evaluate.handbook.trials import Trials
from unstarve.evaluate.random_state import random_state_kept
from unstarve.machine import cgroup_quota_cores, usable_cores
from unstarve.model import LoaderArguments, SampleCost, Tried, WorkerSearch
from unstarve.words import times
from unstarve.words import workers as in_words

_LOOKING = 0.05
"""Of the time: a look at single samples, to know how many workers are worth a try."""


def find_num_workers(
    dataset: Any,
    batch_size: int | None = 32,
    *,
    candidates: Sequence[int] | None = None,
    budget_s: float = 30.0,
    progress: bool = True,
    **options: Any,
) -> WorkerSearch:
    """Measure how fast `dataset` can be loaded with several numbers of workers; the fewest that suffice.

    Loaders with each number (`candidates`; by default doubling, past the cores where fetching waits) take
    turns for about `budget_s` seconds. Smaller differences than the rounds' own are not counted as any.
    Nothing trains meanwhile: a training that needs the cores itself may want fewer workers.

    `options` go to the loaders as they are: ``collate_fn``, ``worker_init_fn``, ….
    Samples are also fetched in this process; random streams are put back. Exceptions of the dataset pass.
    """
    check(batch_size, budget_s, candidates)
    trials = Trials(dataset, options)
    with Telling(show=progress) as telling, random_state_kept(SimpleNamespace(dataset=dataset)):
        telling.stage("looking at single samples")
        cost = sample_cost(dataset, _LOOKING * budget_s)
        telling.stage("trying numbers of workers")
        rest_s = (1 - _LOOKING) * budget_s
        return search(trials, batch_size, candidates, cost, rest_s, telling)


def search(
    trials: Trials,
    batch_size: int | None,
    candidates: Sequence[int] | None,
    cost: SampleCost,
    budget_s: float,
    telling: Telling,
) -> WorkerSearch:
    """Try numbers of workers and conclude."""
    quota = cgroup_quota_cores()
    cores = min(float(usable_cores()), quota) if quota else float(usable_cores())
    numbers = sorted(set(candidates or worker_candidates(cores, cost.cpu_share)))
    pinned = bool(trials.options.get("pin_memory"))
    wanted = [LoaderArguments(number, batch_size, pin_memory=pinned) for number in numbers]
    settings, too_large = that_fit(wanted, cost.sample_bytes, room_bytes())
    tried = trials.compare(settings, budget_s, telling.say)
    if not tried:
        raise UsageError(
            f"the dataset ends before {in_words(numbers[0])} could be measured; give a smaller batch_size"
        )
    found = concluded(tried, len(settings), cores, trials.options)
    return replace(found, notes=(*found.notes, *_of_memory(too_large)))


def _of_memory(too_large: Sequence[LoaderArguments]) -> Iterator[str]:
    if too_large:
        fewest = in_words(too_large[0].num_workers)
        yield f"{fewest} and more were not tried: their batches would fill the (shared) memory that is left"


def concluded(tried: tuple[Tried, ...], asked: int, cores: float, options: Mapping[str, Any]) -> WorkerSearch:
    """What the measured rates say."""
    chosen = least_of_the_fastest(tried)
    number = chosen.setting.num_workers
    none = next((one for one in tried if one.setting.num_workers == 0), None)
    speedup = None if none is None else ratio(chosen, none)
    arguments = {"batch_size": chosen.setting.batch_size, "num_workers": number}
    if number:
        arguments["persistent_workers"] = True
    notes = []
    if len(tried) < asked:
        notes.append(f"the time sufficed for {len(tried)} of {asked} numbers of workers: give more budget_s")
    if min(len(one.rates) for one in (chosen, fastest(tried))) < 2:
        notes.append("each number was measured once only: give more budget_s to be sure")
    return WorkerSearch(
        num_workers=number,
        speedup=speedup,
        headline=_headline(chosen, tried, speedup),
        tried=tried,
        cores=cores,
        arguments=arguments,
        code=loader_arguments(arguments, options),
        notes=tuple(notes),
    )


def _headline(chosen: Tried, tried: Sequence[Tried], speedup: float | None) -> str:
    number = chosen.setting.num_workers
    if number == 0:
        return "No worker is needed: this process loads as fast by itself."
    does = "s" if number == 1 else ""
    gain = f" suffice{does}" if speedup is None else f" load{does} {times(speedup)} as fast as none"
    more = number < max(one.setting.num_workers for one in tried)
    return f"{in_words(number)}{gain}{'; more are not faster' if more else '; more may be faster still'}."


def check(batch_size: Any, budget_s: Any, candidates: Sequence[int] | None = None) -> None:
    """Raise a `UsageError` for what makes no sense."""
    if batch_size is not None and (type(batch_size) is not int or batch_size < 1):
        raise UsageError(f"batch_size is a whole number, at least 1, or None, not {batch_size!r}")
    if isinstance(budget_s, bool) or not isinstance(budget_s, (int, float)) or not budget_s > 0:
        raise UsageError(f"budget_s is a number of seconds above 0, not {budget_s!r}")
    if candidates is not None and (
        not candidates or any(type(number) is not int or number < 0 for number in candidates)
    ):
        raise UsageError(f"candidates are numbers of workers, 0 or more, not {candidates!r}")
