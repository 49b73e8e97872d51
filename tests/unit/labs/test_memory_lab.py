"""How growth is told from noise, and verdicts that are not causes."""

from __future__ import annotations

from pathlib import Path

import pytest

from unstarve.errors import UsageError
from unstarve.labs.judge import judge
from unstarve.labs.specs.memory_profiling import LAB, kept_a_step
from unstarve.labs.started import start, started_in

MB = 1_000_000


def test_growth_is_counted_once_caches_are_full() -> None:
    held = [(300 + 10 * epoch) * MB for epoch in range(10)]
    held[0] = 100 * MB
    assert kept_a_step(held, 10 * 16) == pytest.approx(10 * MB / 16)


def test_a_jump_of_the_allocator_is_no_growth() -> None:
    assert kept_a_step([400 * MB, *[500 * MB] * 8, 530 * MB], 10 * 16) == 0


def test_a_lab_may_have_verdicts_that_are_not_causes(tmp_path: Path) -> None:
    seed = next(seed for seed in range(100) if (one := LAB.fault(seed)) and one.name == "cache")
    start(LAB.name, tmp_path, seed=seed, force=True)
    answers = tmp_path / "answers.toml"
    assert "Which part leaks" in answers.read_text()
    answers.write_text('verdict = "cpu"\n')
    with pytest.raises(
        UsageError, match=r"cpu in .* is no verdict of this lab; choose one of losses, batches, cache, none"
    ):
        judge(started_in(tmp_path))
    answers.write_text('verdict = "losses"\nkept_mb = 0\nbatch_size = 0\n')
    assert judge(started_in(tmp_path)).committed
    assert judge(started_in(tmp_path)).lines[0] == "Your verdict, losses, is wrong."
