"""The processor's counters of the step and of loading, as a table."""

from __future__ import annotations

from rich.console import Group

from unstarve.model.processor import ProcessorSummary
from unstarve.present.terminal.profile_tables import titled_table
from unstarve.words import rate

_COLUMNS = ("part", "instructions per cycle", "cache misses", "TLB misses")


def processor_table(processor: ProcessorSummary | None) -> Group | None:
    """A row for each part; None when nothing was counted."""
    if processor is None:
        return None
    rows = [
        (
            name,
            _rate(use.instructions_per_cycle),
            _rate(use.cache_misses_per_1000),
            _rate(use.tlb_misses_per_1000),
        )
        for name, use in (("step", processor.step), ("loading", processor.loading))
        if use is not None
    ]
    table = list(titled_table("processor (misses per 1,000 instructions)", _COLUMNS, rows))
    return Group(*table) if table else None


def _rate(value: float | None) -> str:
    return "–" if value is None else rate(value)
