"""Settings are measured in turns on a constructed clock, and concluded from only beyond the noise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from unstarve.evaluate.handbook.find_workers import (
    concluded,
    needed_bytes,
    room_bytes,
    that_fit,
    worker_candidates,
)
from unstarve.evaluate.handbook.setting_trials import (
    MOST_ROUNDS,
    are_compared,
    beats,
    burst_s,
    fastest,
    fewest_of_the_fastest,
    in_rounds,
    ratio,
)
from unstarve.model import LoaderArguments, Tried


def setting(workers: int) -> LoaderArguments:
    return LoaderArguments(workers, 32)


class Bench:
    """Measurements that take their time and give the rates that a test says."""

    def __init__(self, rates: dict[int, float | Sequence[float | None]], burst_s: float = 1.0) -> None:
        self.now_s = 100.0
        self.order: list[int] = []
        self._rates, self._burst_s = rates, burst_s

    def measure(self, one: LoaderArguments) -> float | None:
        self.now_s += self._burst_s
        workers = one.num_workers
        found = self._rates[workers]
        rate = found if isinstance(found, (int, float)) else found[self.order.count(workers)]
        self.order.append(workers)
        return rate

    def run(self, budget_s: float) -> dict[int, tuple[float, ...]]:
        tried = in_rounds(
            [setting(workers) for workers in self._rates],
            self.measure,
            budget_s=budget_s,
            clock=lambda: self.now_s,
            say=lambda _words: None,
        )
        return {one.setting.num_workers: one.rates for one in tried}


def test_settings_take_turns_and_every_other_round_goes_backwards() -> None:
    bench = Bench({0: 80, 1: 90, 2: 100})
    assert {len(rates) for rates in bench.run(9.0).values()} == {3}
    assert bench.order == [0, 1, 2, 2, 1, 0, 0, 1, 2]


def test_no_round_is_begun_that_would_not_end_in_time() -> None:
    bench = Bench({0: 80, 1: 90, 2: 100})
    assert {len(rates) for rates in bench.run(8.9).values()} == {2}
    assert bench.now_s == 106.0


def test_the_first_round_is_cut_where_the_time_is_over() -> None:
    bench = Bench({0: 80, 1: 90, 2: 100}, burst_s=10)
    assert bench.run(15.0) == {0: (80,), 1: (90,)}


def test_something_is_measured_even_without_time() -> None:
    assert Bench({0: 80, 1: 90}, burst_s=10).run(0.001) == {0: (80,)}


def test_the_hopeless_are_not_measured_again() -> None:
    bench = Bench({0: 10, 1: 60, 2: 100})
    found = bench.run(1e9)
    assert [len(rates) for rates in found.values()] == [1, MOST_ROUNDS, MOST_ROUNDS]


def test_what_cannot_be_measured_is_left_out() -> None:
    assert Bench({0: [None], 1: 90}).run(2.0) == {1: (90,)}
    assert Bench({0: [None], 1: [None]}).run(2.0) == {}


def test_a_round_that_gave_nothing_ends_a_setting() -> None:
    found = Bench({0: [80, None, 80], 1: [90] * MOST_ROUNDS}).run(1e9)
    assert found == {0: (80,), 1: (90,) * MOST_ROUNDS}


def test_what_would_fill_the_memory_is_not_tried() -> None:
    settings = [
        LoaderArguments(0, 10),
        LoaderArguments(1, 10),
        LoaderArguments(4, 10),
        LoaderArguments(1, 10, 8),
    ]
    assert [needed_bytes(one, 100) for one in settings] == [1000, 3000, 9000, 9000]
    assert that_fit(settings, 100, 5000) == (settings[:2], settings[2:])
    assert that_fit(settings, 100, 0) == (settings[:1], settings[1:])
    assert that_fit(settings, None, 0) == (settings, [])


def test_there_is_room_and_never_more_than_the_shared_memory_has(tmp_path: Path) -> None:
    assert room_bytes(tmp_path) > 0
    assert room_bytes(tmp_path / "missing") > 0


def test_bursts_fit_into_the_time() -> None:
    assert burst_s(18.0, 6) * 6 * 3 < 18.0
    assert burst_s(0.0, 6) > 0
    assert burst_s(1e9, 6) <= 1.0


# --- conclusions ---


def tried(workers: int, *rates: float) -> Tried:
    return Tried(setting(workers), rates)


def test_a_difference_counts_when_every_round_has_it() -> None:
    assert beats(tried(4, 110, 108, 120), tried(2, 100, 100, 100))
    assert not beats(tried(4, 130, 130, 99), tried(2, 100, 100, 100))
    assert not beats(tried(4, 103, 103, 103), tried(2, 100, 100, 100))


def test_rounds_are_compared_with_their_own_neighbours() -> None:
    calm, busy = (100, 50), (120, 60)
    assert beats(tried(4, *busy), tried(2, *calm))
    assert ratio(tried(4, *busy), tried(2, *calm)) == pytest.approx(1.2)


def test_what_was_measured_once_must_be_plain() -> None:
    assert not beats(tried(4, 150), tried(2, 100, 100))
    assert beats(tried(4, 250, 240), tried(2, 100))
    assert not are_compared([tried(4, 150), tried(2, 100, 100)])
    assert are_compared([tried(4, 150, 160), tried(2, 100)])


def test_the_fewest_workers_that_nothing_beats_are_chosen() -> None:
    flat = [tried(0, 50), tried(2, 199, 201), tried(4, 202, 199), tried(8, 204, 203)]
    assert fastest(flat).setting.num_workers == 8
    assert fewest_of_the_fastest(flat).setting.num_workers == 2
    rising = [tried(0, 10), tried(1, 20), tried(2, 40), tried(4, 80), tried(8, 170, 165)]
    assert fewest_of_the_fastest(rising).setting.num_workers == 8


@pytest.mark.parametrize(
    ("cores", "cpu_share", "candidates"),
    [
        (2, 1.0, (0, 1, 2, 4)),
        (2, 0.1, (0, 1, 2, 4, 8, 16)),
        (6, 1.0, (0, 1, 2, 4, 6, 8)),
        (1, 1.0, (0, 1, 2)),
        (64, 0.1, (0, 1, 2, 4, 8, 16, 32)),
        (1.5, 0.0, (0, 1, 2, 4, 8)),
    ],
)
def test_work_that_waits_gets_more_workers_than_cores(
    cores: float, cpu_share: float, candidates: tuple[int, ...]
) -> None:
    found = worker_candidates(cores, cpu_share)
    assert set(candidates) <= set(found)
    assert found[-1] == candidates[-1]


def test_the_answer_is_a_sentence_and_a_call() -> None:
    found = concluded((tried(0, 10), tried(2, 40, 41), tried(4, 40, 41)), 3, 2.0, {"collate_fn": len})
    assert found.num_workers == 2
    assert found.headline == "2 workers load 4.0× as fast as none; more are not faster."
    assert "num_workers=2" in found.code
    assert "collate_fn=collate_fn" in found.code
    assert found.notes == ()


def test_the_answer_may_be_none() -> None:
    found = concluded((tried(0, 10, 10), tried(2, 4), tried(4, 3)), 3, 2.0, {})
    assert (found.num_workers, found.headline) == (
        0,
        "No workers are needed: this process loads as fast by itself.",
    )
    assert found.code == "DataLoader(dataset, batch_size=32, num_workers=0)"


def test_what_was_not_measured_enough_is_said() -> None:
    found = concluded((tried(1, 10),), 3, 2.0, {})
    assert found.speedup is None
    assert found.headline == "1 worker suffices; more may be faster still."
    assert len(found.notes) == 2
