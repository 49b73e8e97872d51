"""What is noticed after tuning, and the machine that a search is for."""

from __future__ import annotations

import pytest

from unstarve.tune.change_watch import ChangeWatch
from unstarve.tune.tuner import worker_limits


def is_noticed(watch: ChangeWatch, wait_s: float, seconds: float, step_s: float = 0.05) -> bool:
    """Whether a search is due within so much training."""
    return any(watch.add(wait_s, step_s) and watch.has_changed() for _ in range(int(seconds / step_s)))


def settled() -> ChangeWatch:
    watch = ChangeWatch()
    watch.settle()
    return watch


def test_steady_training_is_not_searched_again() -> None:
    assert not is_noticed(settled(), 0.01, 10_000)


@pytest.mark.parametrize("then_s", [0.001, 0.045])
def test_a_change_that_lasts_is_noticed_in_either_direction(then_s: float) -> None:
    watch = settled()
    assert not is_noticed(watch, 0.02, 60)
    assert is_noticed(watch, then_s, 60)


def test_a_change_that_passes_is_not() -> None:
    watch = settled()
    for _ in range(20):
        assert not is_noticed(watch, 0.02, 60)
        assert not is_noticed(watch, 0.045, 4)


def test_longer_steps_alone_are_no_reason() -> None:
    watch = settled()
    is_noticed(watch, 0.0, 60)
    assert not is_noticed(watch, 0.001, 600, step_s=0.5)


def test_a_validation_in_between_is_no_reason_and_no_measure() -> None:
    watch = settled()
    for _ in range(30):
        assert not is_noticed(watch, 0.02, 2)
        assert not watch.add(0.0, 60.0)
        assert not is_noticed(watch, 0.0, 0.2)  # batches that lie ready


def test_searches_become_rarer_on_a_machine_that_changes_all_the_time() -> None:
    watch, searches = ChangeWatch(), 0
    watch.settle()
    for n in range(600):
        if is_noticed(watch, 0.02 if n % 4 < 2 else 0.045, 6):
            searches += 1
            watch.settle()
    assert 2 <= searches <= 12  # in an hour


def test_the_ranks_of_a_node_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    alone = worker_limits().cores
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1000")
    assert worker_limits().cores == 1.0 <= alone
    assert worker_limits(5).max_workers == 5
