"""How much work the parts of an exercise do."""

from __future__ import annotations

from pathlib import Path

import pytest

from unstarve.errors import UsageError
from unstarve.labs.drawn import amount
from unstarve.labs.started import start


def test_only_the_part_that_was_drawn_has_much_work(tmp_path: Path) -> None:
    started = start("basic-profiling", tmp_path, seed=3)
    drawn = started.lab.fault(3)
    assert drawn is not None
    for part in started.lab.own_verdicts:
        found = amount(tmp_path, part, small=6, large=1000)
        assert 1000 <= found <= 1500 if part == drawn.name else found == 6
        assert found == amount(tmp_path, part, small=6, large=1000)


def test_draws_differ_in_the_amount(tmp_path: Path) -> None:
    lab = start("basic-profiling", tmp_path, seed=0).lab
    found = set()
    for seed in range(300):
        drawn = lab.fault(seed)
        if drawn is not None and drawn.name == "late.mix":
            start("basic-profiling", tmp_path, force=True, seed=seed)
            found.add(amount(tmp_path, "late.mix", small=6, large=1000))
    assert len(found) > 10


def test_without_a_lab_there_is_nothing_drawn(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no lab"):
        amount(tmp_path, "late.mix", small=6, large=1000)
