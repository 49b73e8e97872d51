"""How far ahead is read, by what a loop takes and where its data lies."""

from __future__ import annotations

import pytest

from unstarve.fixes.loader.engines import read_ahead as pace
from unstarve.fixes.loader.engines.read_ahead import FEW, MANY, ReadAheadPace


class Loop:
    """A training loop on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.blocks = 0
        monkeypatch.setattr(pace, "_blocks_read", lambda: self.blocks)
        self.now_s = 100.0
        self.pace = ReadAheadPace()

    def runs(
        self, batches: int, *, make_s: float, step_s: float, blocks: int = 0, waited: bool = False
    ) -> int:
        self.pace.begins()
        for _ in range(batches):
            self.pace.asks(self.now_s)
            self.blocks += blocks
            self.pace.gives(self.now_s, make_s, waited=waited)
            self.now_s += step_s
        return self.pace.ahead


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(monkeypatch)


def test_before_anything_is_known_a_few_are_read_ahead(loop: Loop) -> None:
    assert loop.pace.ahead == FEW


def test_a_step_that_takes_time_hides_the_reading(loop: Loop) -> None:
    assert loop.runs(10, make_s=0.010, step_s=0.008) == FEW


def test_a_loop_that_does_nothing_reads_by_itself(loop: Loop) -> None:
    assert loop.runs(10, make_s=0.010, step_s=0.0001) == 0


def test_what_comes_from_storage_is_read_far_ahead_whatever_the_step(loop: Loop) -> None:
    assert loop.runs(10, make_s=0.010, step_s=0.0001, blocks=8) == MANY


def test_what_has_to_be_waited_for_is_read_far_ahead_too(loop: Loop) -> None:
    assert loop.runs(10, make_s=0.010, step_s=0.0001, waited=True) == MANY
    assert loop.runs(10, make_s=0.010, step_s=0.0001) == 0


def test_a_cache_that_has_become_warm_is_noticed(loop: Loop) -> None:
    loop.runs(10, make_s=0.010, step_s=0.0001, blocks=8)
    assert loop.runs(10, make_s=0.001, step_s=0.00001) == 0


def test_a_step_that_has_become_longer_is_noticed(loop: Loop) -> None:
    loop.runs(10, make_s=0.010, step_s=0.0001)
    assert loop.runs(10, make_s=0.010, step_s=0.010) == FEW


def test_what_lies_between_two_epochs_is_no_step(loop: Loop) -> None:
    loop.runs(10, make_s=0.010, step_s=0.0001)
    loop.now_s += 60.0  # validation
    assert loop.runs(2, make_s=0.010, step_s=0.0001) == 0
