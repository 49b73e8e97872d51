"""Measure how many workers a dataset needs: loaders take turns for about half a minute."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from unstarve.advise.loader_call import loader_arguments
from unstarve.collect.random_state import random_state_kept
from unstarve.errors import UsageError
from unstarve.evaluate.handbook.loader_advice import advice_for, dataset_name
from unstarve.evaluate.handbook.sample_cost import sample_cost
from unstarve.evaluate.handbook.setting_trials import Trials, fastest, fewest_of_the_fastest, ratio
from unstarve.machine import available_bytes, cgroup_quota_cores, usable_cores
from unstarve.model import LoaderArguments, SampleCost, Tried, WorkerSearch
from unstarve.progress import StageProgress, stages, stderr_console
from unstarve.words import times
from unstarve.words import workers as in_words

_LOOKING, _ADVISING = 0.05, 0.1
"""Shares of the time for single samples, which decide how many workers are worth trying, and for advice."""


def find_num_workers(
    dataset: Any,
    batch_size: int | None = 32,
    *,
    candidates: Sequence[int] | None = None,
    budget_s: float = 30.0,
    progress: bool = True,
    **options: Any,
) -> WorkerSearch:
    """Measure loading speed with several numbers of workers, and return the fewest that are fast enough.

    Loaders with each number (`candidates`; by default doubling, past the number of cores if fetching waits)
    take turns for about `budget_s` seconds. Differences smaller than the noise between rounds are ignored.
    Nothing trains meanwhile: a training loop that needs the cores itself may want fewer workers. A short
    recording of the chosen loader then says what else would make it faster: `WorkerSearch.advice`.

    `options` are passed to the loaders: ``collate_fn``, ``worker_init_fn``, …. Samples are also fetched in
    this process; random streams are restored afterwards. Exceptions of the dataset propagate.
    """
    check(batch_size, budget_s, candidates)
    trials = Trials(dataset, options)
    with (
        stages(stderr_console() if progress else None) as shown,
        random_state_kept(SimpleNamespace(dataset=dataset)),
    ):
        shown.stage("measuring single samples")
        cost = sample_cost(dataset, _LOOKING * budget_s)
        shown.stage("trying numbers of workers")
        rest_s = (1 - _LOOKING - _ADVISING) * budget_s
        found = search(trials, batch_size, candidates, cost, rest_s, shown)
        shown.stage("looking for more to gain")
        setting = LoaderArguments(found.num_workers, batch_size, pin_memory=bool(options.get("pin_memory")))
        name = dataset_name(find_num_workers.__name__)
        code = loader_arguments(found.arguments, trials.options, name)
        advice = advice_for(trials, setting, code, _ADVISING * budget_s, measured=("num_workers",))
        return replace(found, code=code, advice=advice)


def search(
    trials: Trials,
    batch_size: int | None,
    candidates: Sequence[int] | None,
    cost: SampleCost,
    budget_s: float,
    shown: StageProgress,
) -> WorkerSearch:
    """Try several numbers of workers and choose one."""
    quota = cgroup_quota_cores()
    cores = min(float(usable_cores()), quota) if quota else float(usable_cores())
    numbers = sorted(set(candidates or worker_candidates(cores, cost.cpu_share)))
    pinned = bool(trials.options.get("pin_memory"))
    wanted = [LoaderArguments(number, batch_size, pin_memory=pinned) for number in numbers]
    settings, too_large = that_fit(wanted, cost.sample_bytes, room_bytes())
    tried = trials.compare(settings, budget_s, shown.detail)
    if not tried:
        raise UsageError(
            f"the dataset ended before {in_words(numbers[0])} could be measured; use a smaller batch_size"
        )
    found = concluded(tried, len(settings), cores, trials.options)
    return replace(found, notes=(*found.notes, *_of_memory(too_large)))


def _of_memory(too_large: Sequence[LoaderArguments]) -> Iterator[str]:
    if too_large:
        fewest = in_words(too_large[0].num_workers)
        yield f"{fewest} or more were not tried: their batches would not fit into the free (shared) memory"


def concluded(tried: tuple[Tried, ...], asked: int, cores: float, options: Mapping[str, Any]) -> WorkerSearch:
    """Choose a number of workers from the measured rates."""
    chosen = fewest_of_the_fastest(tried)
    number = chosen.setting.num_workers
    none = next((one for one in tried if one.setting.num_workers == 0), None)
    speedup = None if none is None else ratio(chosen, none)
    arguments = {"batch_size": chosen.setting.batch_size, "num_workers": number}
    if number:
        arguments["persistent_workers"] = True
    notes = []
    if len(tried) < asked:
        notes.append(f"only {len(tried)} of {asked} numbers of workers were tried; increase budget_s")
    if min(len(one.rates) for one in (chosen, fastest(tried))) < 2:
        notes.append("each number was measured only once; increase budget_s to be sure")
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
        return "No workers are needed: this process loads as fast by itself."
    does = "s" if number == 1 else ""
    gain = f" suffice{does}" if speedup is None else f" load{does} {times(speedup)} as fast as none"
    more = number < max(one.setting.num_workers for one in tried)
    return f"{in_words(number)}{gain}{'; more are not faster' if more else '; more may be faster still'}."


def check(batch_size: Any, budget_s: Any, candidates: Sequence[int] | None = None) -> None:
    """Raise a `UsageError` for invalid arguments."""
    if batch_size is not None and (type(batch_size) is not int or batch_size < 1):
        raise UsageError(f"batch_size must be an integer >= 1 or None, got {batch_size!r}")
    if isinstance(budget_s, bool) or not isinstance(budget_s, (int, float)) or not budget_s > 0:
        raise UsageError(f"budget_s must be > 0 seconds, got {budget_s!r}")
    if candidates is not None and (
        not candidates or any(type(number) is not int or number < 0 for number in candidates)
    ):
        raise UsageError(f"candidates must be integers >= 0, got {candidates!r}")


_SHARED_MEMORY = Path("/dev/shm")
_USUAL_PREFETCH = 2
_USABLE = 0.5
"""Share of the free memory: other processes need some, too."""


def room_bytes(shared_memory: Path = _SHARED_MEMORY) -> int:
    """Bytes that prefetched batches may take, of shared memory and of all memory."""
    free = available_bytes()
    try:
        found = os.statvfs(shared_memory)
        free = min(free, found.f_bavail * found.f_frsize)
    except OSError:  # macOS has no such folder
        pass
    return int(_USABLE * free)


def needed_bytes(setting: LoaderArguments, sample_bytes: int | None) -> int:
    """Bytes of all batches when every worker has prefetched its share; 0 if a sample's size is unknown."""
    depth = setting.prefetch_factor or _USUAL_PREFETCH
    return (sample_bytes or 0) * (setting.batch_size or 1) * (setting.num_workers * depth + 1)


def that_fit(
    settings: Sequence[LoaderArguments], sample_bytes: int | None, room: int
) -> tuple[list[LoaderArguments], list[LoaderArguments]]:
    """Return the settings that fit, the first of them in any case, and those that do not."""
    fit = [one for one in settings if one is settings[0] or needed_bytes(one, sample_bytes) <= room]
    return fit, [one for one in settings if one not in fit]


def worker_candidates(cores: float, cpu_share: float) -> tuple[int, ...]:
    """Numbers of workers to try: doubling, up to where more cannot help.

    CPU work gains nothing past the number of cores; work that waits does, far past it.
    """
    at_most = _MOST_WAITING if cpu_share < _MOSTLY_CPU else 2
    limit = min(max(round(cores * at_most), 2), _MOST_WORKERS)
    doubled = [2**n for n in range(limit.bit_length()) if 2**n <= limit]
    return tuple(sorted({0, *doubled, min(max(round(cores), 1), limit)}))


_MOSTLY_CPU = 0.8
_MOST_WAITING = 8
"""Workers per core to try if fetching waits."""
_MOST_WORKERS = 32
