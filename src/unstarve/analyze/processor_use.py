"""The processor's counters → rates of the step and of loading."""

from __future__ import annotations

from collections.abc import Sequence

from unstarve.model import Run
from unstarve.model.processor import ProcessorCounts, ProcessorSummary, ProcessorUse


def summarize_processor(run: Run) -> ProcessorSummary | None:
    """The summary; None when nothing was to be counted."""
    steps = [process.step_counts for process in run.processes if process.step_counts is not None]
    loading = [process.loading_counts for process in run.processes if process.loading_counts is not None]
    if not steps and not loading and run.perf_why_not is None:
        return None
    return ProcessorSummary(run.perf_why_not, _use(steps), _use(loading))


def _use(counts: Sequence[ProcessorCounts]) -> ProcessorUse | None:
    enabled, running = sum(one.enabled_ns for one in counts), sum(one.running_ns for one in counts)
    if not enabled or not running:
        return None
    cycles, instructions = sum(one.cycles for one in counts), _sum([one.instructions for one in counts])
    return ProcessorUse(
        cycles=round(sum(one.cycles * one.enabled_ns / one.running_ns for one in counts if one.running_ns)),
        instructions_per_cycle=instructions / cycles if instructions is not None and cycles else None,
        cache_misses_per_1000=_per_1000(_sum([one.cache_misses for one in counts]), instructions),
        tlb_misses_per_1000=_per_1000(_sum([one.tlb_misses for one in counts]), instructions),
        counted_share=min(running / enabled, 1.0),
    )


def _sum(values: Sequence[int | None]) -> int | None:
    """None if one of them is: they belong to different numbers of instructions."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _per_1000(misses: int | None, instructions: int | None) -> float | None:
    return None if misses is None or not instructions else misses / instructions * 1000
