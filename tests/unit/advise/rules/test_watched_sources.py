"""Watched sources of other libraries: the setting that makes their batches in parallel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fakes import diagnosis_of
from unstarve.advise.all_rules import advise
from unstarve.model import Advice, Cause, Diagnosis, State

NODES, GRAIN = "torchdata.nodes.loader", "grain._src.python.dataset.transformations.prefetch"
READS = "grain.ReadOptions(num_threads=16, prefetch_buffer_size=500)"


def watched(cause: Cause, module: str, *, parallel: bool | None = False, **given: Any) -> Diagnosis:
    """A diagnosis of a training that iterates ``unstarve.watch(source)``."""
    d = diagnosis_of(cause, **{"cores": 8, **given})
    loader = replace(d.loaders[0], kind="Loader", config={"module": module, "parallel": parallel})
    return replace(d, demand=None, loaders=(loader,))


def advised(d: Diagnosis) -> dict[str, Advice]:
    return {one.id: one for one in advise(d)[0]}


@pytest.mark.parametrize(
    ("cause", "module", "code"),
    [
        (Cause.CPU, NODES, "# nodes.ParallelMapper(source, fn, num_workers=8, method='process')"),
        (Cause.UNKNOWN, NODES, "# nodes.ParallelMapper(source, fn, num_workers=16, method='thread')"),
        (Cause.CPU, GRAIN, ".mp_prefetch(grain.MultiprocessingOptions(num_workers=8))"),
        (Cause.UNKNOWN, GRAIN, f"# dataset.to_iter_dataset({READS})"),
        (Cause.CPU, "grain._src.python.data_loader", "# grain.DataLoader(…, worker_count=8)"),
        (Cause.UNKNOWN, "grain._src.python.data_loader", f"# grain.DataLoader(…, read_options={READS})"),
    ],
)
def test_advice_is_the_setting_of_the_library(cause: Cause, module: str, code: str) -> None:
    one = advised(watched(cause, module))["parallel-source"]
    assert code in one.code
    assert one.speedup is None
    assert ("100%" if cause is Cause.CPU else "0%") in one.why


def test_lost_cores_do_not_hide_that_a_source_computes() -> None:
    d = watched(Cause.CPU, NODES, waits={Cause.CPU: 2.0, Cause.CONTENTION: 4.0})
    assert "method='process'" in advised(d)["parallel-source"].code


@pytest.mark.parametrize(
    "d",
    [
        watched(Cause.UNKNOWN, NODES, state=State.TIGHT),
        watched(Cause.UNKNOWN, "grainy.data"),
        watched(Cause.UNKNOWN, "__main__"),
        watched(Cause.CPU, NODES, cores=1),
        watched(Cause.UNKNOWN, NODES, parallel=True),
        watched(Cause.UNKNOWN, GRAIN, parallel=None),
        diagnosis_of(Cause.CPU, config={"module": NODES}),
    ],
)
def test_others_are_left_alone(d: Diagnosis) -> None:
    assert "parallel-source" not in advised(d)
