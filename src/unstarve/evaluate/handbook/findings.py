"""What the parts of a loader's diagnosis come to: sentences, and the arguments that they justify."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from unstarve.intervals import WORTH_IT
from unstarve.model import ProfiledFunction, SampleCost, StartCost, Tried, WorkerSearch
from unstarve.present.units import rate, share, times
from unstarve.words import ms, size

_PLAIN = 2.0
"""A difference that needs no second look."""


def ratio(one: Tried, other: Tried) -> float:
    """How many times as fast as the other, by the rounds that both have."""
    return median(_ratios(one, other))


def beats(one: Tried, other: Tried) -> bool:
    """Faster, by more than it is worth, and in every round: luck would have to strike each time.

    What both were measured in only once counts when it is twice as fast.
    """
    ratios = _ratios(one, other)
    return median(ratios) > (WORTH_IT if len(ratios) > 1 else _PLAIN) and min(ratios) > 1


def fastest(tried: Sequence[Tried]) -> Tried:
    """By the typical round."""
    return max(tried, key=lambda one: one.rate)


def least_of_the_fastest(tried: Sequence[Tried]) -> Tried:
    """The first, in the order given, that none of the others beats."""
    return next(one for one in tried if not any(beats(other, one) for other in tried))


def _ratios(one: Tried, other: Tried) -> list[float]:
    return [a / b for a, b in zip(one.rates, other.rates, strict=False)]


def compared(tried: Sequence[Tried]) -> bool:
    """Whether there are two or more, measured often enough to tell a small difference from noise."""
    return len(tried) > 1 and all(len(one.rates) > 1 for one in (tried[0], fastest(tried)))


def worker_candidates(cores: float, cpu_share: float) -> tuple[int, ...]:
    """Numbers of workers to try: doubling, up to where more cannot help.

    Work that is on a CPU all the time gains nothing past the cores; work that waits does, far past them.
    """
    at_most = _MOST_WAITING if cpu_share < _MOSTLY_CPU else 2
    limit = min(max(round(cores * at_most), 2), _MOST_WORKERS)
    doubled = [2**n for n in range(limit.bit_length()) if 2**n <= limit]
    return tuple(sorted({0, *doubled, min(max(round(cores), 1), limit)}))


_MOSTLY_CPU = 0.8
_MOST_WAITING = 8
"""Workers per core that are tried where fetching waits."""
_MOST_WORKERS = 32


_MOSTLY_CPU, _HARDLY_CPU = 0.8, 0.5
_UNEVEN = 5.0
"""The longest sample over the typical one, from where on it is worth a word."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What is said and recommended."""

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
    """From measurements to a call; an argument is only in it when it was measured to help."""
    findings = [_of_samples(sample), workers.headline]
    arguments: dict[str, Any] = {
        "batch_size": workers.arguments["batch_size"],
        "num_workers": workers.num_workers,
    }
    notes: list[str] = []
    for what, tried in (("batch sizes", sizes), ("depths of prefetching", prefetch), ("pinning", pinning)):
        if tried and not compared(tried):
            notes.append(f"the time did not suffice to compare {what}: give more budget_s")
    if compared(sizes):
        findings.append(_of_sizes(sizes))
    if compared(prefetch):
        deeper = least_of_the_fastest(prefetch)
        if deeper is not prefetch[0]:
            depth = deeper.setting.prefetch_factor
            findings.append(
                f"prefetch_factor={depth} loads {times(ratio(deeper, prefetch[0]), 2)} as fast as 2."
            )
            arguments["prefetch_factor"] = depth
        else:
            findings.append("Prefetching deeper than 2 batches per worker is no faster.")
    if start is not None:
        findings.append(_of_start(start))
        if start.shown:
            arguments["persistent_workers"] = True
    if compared(pinning):
        helps = beats(pinning[1], pinning[0])
        gain = times(ratio(pinning[1], pinning[0]), 2)
        findings.append(f"With pin_memory=True batches reach the GPU {gain} as fast{_unless(helps)}.")
        if helps:
            arguments["pin_memory"] = True
    if not pinning:
        notes.append("there is no GPU here: pin_memory=True was not tried and may help where there is one")
    if functions is None:
        notes.append("functions are not listed: another profiler is at work")
    elif functions:
        top = functions[0]
        findings.append(f"Most of a sample's time, {share(top.share)}, is spent in {top.name}.")
    return Conclusion(_headline(sample, workers), tuple(findings), arguments, tuple(notes))


def _headline(sample: SampleCost, workers: WorkerSearch) -> str:
    best = fastest(workers.tried)
    return f"{_kind(sample)} {workers.headline} The most that was loaded is {rate(best.rate)} samples/s."


def _kind(sample: SampleCost) -> str:
    if sample.cpu_share >= _MOSTLY_CPU:
        return "Samples cost CPU time."
    if sample.cpu_share <= _HARDLY_CPU:
        return "Samples are waited for: workers help past the number of cores."
    return "Samples cost CPU time and are waited for."


def _of_samples(sample: SampleCost) -> str:
    holds = "" if sample.sample_bytes is None else f" and holds {size(sample.sample_bytes)}"
    told = f"A sample takes {ms(sample.typical_s)}, {share(sample.cpu_share)} of it on a CPU,{holds}".rstrip(
        ","
    )
    if sample.longest_s >= _UNEVEN * sample.typical_s:
        which = "" if sample.slowest is None else f" (index {sample.slowest})"
        told += f"; the slowest of {sample.samples} took {ms(sample.longest_s)}{which}"
    return f"{told}."


def _of_sizes(sizes: Sequence[Tried]) -> str:
    own, best = sizes[0], fastest(sizes)
    if best is own or not beats(best, own):
        return f"No other batch size loads more samples a second than {own.setting.batch_size}."
    return (
        f"Batches of {best.setting.batch_size} load {times(ratio(best, own), 2)} as many samples a second as "
        f"{own.setting.batch_size}; whether training likes them is another question."
    )


def _of_start(start: StartCost) -> str:
    if not start.shown:
        return "Keeping workers alive between epochs saves nothing that could be measured."
    return (
        f"Keeping workers alive saves {ms(start.fresh_s - start.kept_s)} at the start of every epoch after "
        "the first."
    )


def _unless(helps: bool) -> str:
    return "" if helps else ", which is within the noise"
