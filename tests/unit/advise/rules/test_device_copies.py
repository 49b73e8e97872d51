"""Advice about copies to the device: what it prints, and a gain that the copies allow."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fake_forecaster import with_forecaster
from fakes import copies_of, diagnosis_of
from unstarve.advise.all_rules import advise
from unstarve.model import Advice, Cause, CopySummary, Diagnosis, Headroom, Maker


def copying(copies: CopySummary, **given: Any) -> Diagnosis:
    """A training whose loader costs nothing."""
    d = diagnosis_of(Cause.COPY, workers=2, free_s=0.0499, copies=copies, **given)
    return with_forecaster(dataclasses.replace(d, waits={Cause.CPU: 0.02}))


def advised(d: Diagnosis) -> dict[str, Advice]:
    return {one.id: one for one in advise(d)[0]}


@pytest.mark.parametrize("share", [0.06, 0.3, 0.6, 0.95])
@pytest.mark.parametrize("memory", ["pageable", "pinned"])
@pytest.mark.parametrize("method", ["estimate", "replay"])
def test_no_gain_is_larger_than_the_copies_allow(share: float, memory: str, method: str) -> None:
    d = copying(copies_of(share, memory))
    found = advised(dataclasses.replace(d, headroom=Headroom(1.002, 1.0, 1.003, method)))
    gains = [one.speedup for one in found.values() if one.speedup is not None]
    assert gains
    for gain in gains:
        assert 1 <= gain.low <= gain.predicted <= gain.high <= 1 / (1 - share) + 0.01


def test_copies_longer_than_the_rest_of_the_step_cannot_all_be_hidden() -> None:
    long = advised(copying(copies_of(0.8, "pinned")))["to-device"].speedup
    assert long is not None
    assert long.predicted < long.high == pytest.approx(1 / 0.8, abs=0.02)


def test_the_loop_iterates_the_loader_by_the_name_the_script_gives_it() -> None:
    d = copying(copies_of(0.3))
    (loader,) = d.loaders
    named = dataclasses.replace(loader, statement="train_loader = ")
    (found,) = [one for one in advise(dataclasses.replace(d, loaders=(named,)))[0] if one.id == "to-device"]
    assert found.code == 'import unstarve\n\nfor batch in unstarve.to_device(train_loader, "cuda"):'


def test_a_framework_moves_its_batches_itself() -> None:
    d = copying(copies_of(0.3))
    (loader,) = d.loaders
    theirs = dataclasses.replace(loader, maker=Maker("transformers", "Trainer"))
    assert "to-device" not in advised(dataclasses.replace(d, loaders=(theirs,)))


def test_a_blocking_copy_from_pinned_memory_need_not_block() -> None:
    found = advised(copying(copies_of(0.3, "pinned")))
    assert "non_blocking=True" in found["non-blocking"].title
    assert found["non-blocking"].speedup is None
