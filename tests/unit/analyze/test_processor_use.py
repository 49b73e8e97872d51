"""Rates from the processor's counters."""

from __future__ import annotations

import dataclasses

import pytest

from fakes import run_of, simple_run
from unstarve.analyze.processor_use import summarize_processor
from unstarve.model import Process
from unstarve.model.processor import ProcessorCounts

COUNTS = ProcessorCounts(1000, 2000, 10, 4, 100, 100)


def process(**fields: ProcessorCounts) -> Process:
    return dataclasses.replace(simple_run([(0.01, 0.01)] * 9).processes[0], **fields)


def test_a_run_without_perf_has_no_summary() -> None:
    assert summarize_processor(run_of(process())) is None


def test_step_and_loading_have_their_own_rates() -> None:
    found = summarize_processor(
        run_of(process(step_counts=COUNTS), process(loading_counts=dataclasses.replace(COUNTS, cycles=4000)))
    )
    assert found is not None
    assert found.step is not None
    assert found.loading is not None
    assert found.step.instructions_per_cycle == 2
    assert found.loading.instructions_per_cycle == 0.5
    assert found.step.cache_misses_per_1000 == 5
    assert found.step.tlb_misses_per_1000 == 2


def test_workers_are_added_up_and_scaled_where_counters_took_turns() -> None:
    half = dataclasses.replace(COUNTS, running_ns=50)
    found = summarize_processor(run_of(process(loading_counts=COUNTS), process(loading_counts=half)))
    assert found is not None
    assert found.loading is not None
    assert found.loading.cycles == 3000
    assert found.loading.counted_share == pytest.approx(0.75)
    assert found.loading.instructions_per_cycle == 2


def test_what_the_processor_does_not_count_is_unknown() -> None:
    counts = dataclasses.replace(COUNTS, tlb_misses=None)
    found = summarize_processor(run_of(process(step_counts=counts), process(step_counts=COUNTS)))
    assert found is not None
    assert found.step is not None
    assert found.step.tlb_misses_per_1000 is None
    assert found.step.cache_misses_per_1000 == 5


def test_counters_that_never_ran_say_nothing() -> None:
    found = summarize_processor(run_of(process(step_counts=dataclasses.replace(COUNTS, running_ns=0))))
    assert found is not None
    assert found.step is None


def test_a_refusal_is_kept() -> None:
    found = summarize_processor(dataclasses.replace(run_of(process()), perf_why_not="no counters"))
    assert found is not None
    assert found.why_not == "no counters"
