"""The processor's counters of loading and of the step, as `unstarve run --perf` reads them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessorCounts:
    """Events of the user's code in one part of training. The kernel's are not counted: that needs root."""

    cycles: int
    instructions: int | None
    """None, as below, where the processor does not count it."""
    cache_misses: int | None
    """Of the last-level cache."""
    tlb_misses: int | None
    """Of loads, in the data TLB."""
    enabled_ns: int
    """CPU time of the part."""
    running_ns: int
    """Part of that in which there were free counters: with too few, the kernel takes turns."""


@dataclass(frozen=True, slots=True)
class ProcessorUse:
    """What the counts mean."""

    cycles: int
    """Scaled to the whole CPU time."""
    instructions_per_cycle: float | None
    cache_misses_per_1000: float | None
    """Per thousand instructions, as the next one."""
    tlb_misses_per_1000: float | None
    counted_share: float
    """Share of the CPU time in which the counters ran."""


@dataclass(frozen=True, slots=True)
class ProcessorSummary:
    """Both parts of training, over all processes."""

    why_not: str | None
    """Why nothing was counted, in one sentence; None when something was."""
    step: ProcessorUse | None
    """The training thread, from a batch to the next question for one."""
    loading: ProcessorUse | None
    """Fetching and collating, in workers or in the training process."""
