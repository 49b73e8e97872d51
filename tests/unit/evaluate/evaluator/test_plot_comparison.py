"""Comparing two logs says how much free data would gain, and no more than they show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sample_loaders import numbered
from unstarve.errors import LogError, UsageError
from unstarve.evaluate.evaluator.loader_evaluator import LoaderEvaluator
from unstarve.evaluate.evaluator.plot_comparison import compare_logs, plot_comparison
from unstarve.model import LoadLog


def log(load_s: float, step_s: float | None, *, batches: int = 31, size: int | None = 8) -> LoadLog:
    steps = () if step_s is None else (step_s,) * (batches - 1)
    return LoadLog("x", "log", (load_s,) * batches, steps, () if size is None else (size,) * batches)


def test_the_speed_up_is_that_of_whole_steps() -> None:
    compared = compare_logs(log(0.6, 1.0), log(0.0, 0.4))
    assert compared.speedup == pytest.approx(2.5)
    assert compared.lost_share == pytest.approx(0.6)
    assert compared.real_wait_share == pytest.approx(0.6)
    assert compared.ideal_wait_share == 0
    assert (compared.real_per_s, compared.unit) == (pytest.approx(8), "samples")
    assert compared.headline == "Training waits 60% of the time; 2.5× as fast if loading were free"


def test_a_wait_that_costs_nothing_is_not_called_lost() -> None:
    compared = compare_logs(log(0.9, 1.0), log(0.0, 1.0))
    assert compared.lost_share == 0
    assert "hardly waits" in compared.headline


def test_batches_of_other_sizes_are_compared_by_sample() -> None:
    assert compare_logs(log(0.1, 1.0, size=4), log(0.0, 1.0, size=8)).speedup == pytest.approx(2)


def test_batches_of_unknown_size_are_compared_by_batch() -> None:
    compared = compare_logs(log(0.1, 1.0, size=None), log(0.0, 0.5))
    assert (compared.speedup, compared.unit) == (pytest.approx(2), "batches")


def test_a_replay_that_was_slower_loses_nothing() -> None:
    compared = compare_logs(log(0.1, 1.0), log(0.0, 1.2))
    assert compared.lost_share == 0
    assert "save 0%" in compared.headline


def test_few_steps_allow_no_verdict() -> None:
    assert "too few to tell" in compare_logs(log(0.6, 1.0, batches=5), log(0.0, 0.4)).headline


def test_logs_without_steps_claim_no_speed_up() -> None:
    compared = compare_logs(log(0.6, None), log(0.00002, None))
    assert compared.speedup is compared.lost_share is compared.real_wait_share is None
    assert compared.headline == "A batch takes 600 ms to load and 20.0 µs to replay"


def test_paths_metrics_evaluators_and_logs_can_be_plotted(tmp_path: Path) -> None:
    evaluator = LoaderEvaluator(numbered(), log_file=tmp_path / "log.json")
    list(evaluator)
    sources: list[Any] = [
        tmp_path / "log.json",
        str(tmp_path / "log.json"),
        evaluator.get_metrics(),
        evaluator,
    ]
    for number, source in enumerate(sources):
        output = tmp_path / f"{number}.svg"
        assert plot_comparison(real_log=source, ideal_log=log(0.0, 0.1), output=output) == output
        assert output.stat().st_size > 0


def test_what_holds_no_batches_cannot_be_plotted(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="ideal_log"):
        plot_comparison(log(0.1, 1.0), LoaderEvaluator(numbered()), tmp_path / "x.png")
    with pytest.raises(LogError, match="real_log"):
        plot_comparison(LoadLog("x", "log", (), (), ()), log(0.1, 1.0), tmp_path / "x.png")
    with pytest.raises(UsageError, match="got int"):
        plot_comparison(3, log(0.1, 1.0), tmp_path / "x.png")
