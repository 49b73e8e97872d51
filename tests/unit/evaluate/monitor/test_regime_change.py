"""A change of regime is believed late, and noise never: windows on a constructed clock."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from unstarve.evaluate.monitor.meter import WindowSum, changed
from unstarve.evaluate.monitor.regime_change import RegimeDetector, Shift
from unstarve.model import Cause, Window

MS = 1_000_000


def window(number: int, wait_ms: float, compute_ms: float = 10.0, steps: int = 50) -> Window:
    first = number * steps + 1
    step_s = (wait_ms + compute_ms) / 1e3
    at_ns = round(number * steps * step_s * 1e9)
    return Window(first, first + steps - 1, at_ns, at_ns + 1, wait_ms / 1e3, wait_ms / 1e3, step_s, None)


def shifts(waits_ms: Iterable[float], compute_ms: float = 10.0) -> list[tuple[int, Shift]]:
    """Which windows brought a change, and which."""
    detector = RegimeDetector()
    found = [(n, detector.feed(window(n, wait_ms, compute_ms))) for n, wait_ms in enumerate(waits_ms)]
    return [(n, shift) for n, shift in found if shift is not None]


def test_a_wait_that_doubles_and_stays_so_is_a_change() -> None:
    ((number, shift),) = shifts([4.0] * 80 + [8.4] * 20)
    assert number == 82
    change = changed("train", shift, Cause.DISK)
    assert change.since_step == 4001
    assert change.noticed_step == 4150
    assert (change.before_wait_ms, change.after_wait_ms) == (pytest.approx(4.0), pytest.approx(8.4))
    assert change.grew
    assert change.ratio == pytest.approx(2.1)
    assert str(change) == (
        "train: since step 4,001 the wait for data has grown from 4.00 ms to 8.40 ms a step (29% to 46% of "
        "the time); more time goes to disk"
    )


def test_the_way_back_is_a_change_too_and_both_are_told_once() -> None:
    found = shifts([4.0] * 20 + [12.0] * 20 + [4.0] * 20)
    assert [number for number, _ in found] == [22, 42]
    assert not changed("train", found[1][1], None).grew
    assert "has shrunk from 12.0 ms to 4.00 ms" in str(changed("train", found[1][1], None))


def test_a_hiccup_is_none() -> None:
    assert shifts([4.0] * 20 + [400.0, 300.0] + [4.0] * 20 + [90.0] + [4.0] * 9) == []


def test_a_hiccup_while_the_reference_is_taken_hides_nothing() -> None:
    ((number, _),) = shifts([4.0, 4.0, 400.0, 4.0, 4.0, 4.0] + [9.0] * 10)
    assert number == 8


def test_the_start_of_training_is_no_regime() -> None:
    assert shifts([900.0] + [4.0] * 40) == []


def test_waits_that_double_from_next_to_nothing_are_no_news() -> None:
    assert shifts([0.01] * 20 + [0.2] * 20) == []


def test_waits_that_come_from_nothing_are() -> None:
    ((_, shift),) = shifts([0.0] * 20 + [5.0] * 20)
    assert changed("train", shift, None).ratio == float("inf")


def test_what_grows_less_than_the_factor_is_none() -> None:
    assert shifts([4.0] * 20 + [7.0] * 40) == []


def test_a_slow_drift_is_noticed_where_it_has_come_far_enough() -> None:
    found = shifts([4.0 + 0.1 * n for n in range(60)])
    assert len(found) == 1
    assert changed("train", found[0][1], None).before_wait_ms < 5


def test_flapping_between_two_levels_is_not_told_every_time() -> None:
    assert shifts([4.0, 9.0] * 60) == []


@pytest.mark.parametrize("seed", range(20))
def test_noise_alone_is_never_a_change(seed: int) -> None:
    stream = random.Random(seed)
    assert shifts(4.0 * stream.lognormvariate(0, 0.3) for _ in range(400)) == []


@pytest.mark.parametrize("seed", range(20))
def test_a_large_change_is_found_in_noise(seed: int) -> None:
    stream = random.Random(seed)
    waits = [(4.0 if n < 100 else 20.0) * stream.lognormvariate(0, 0.2) for n in range(130)]
    ((number, shift),) = shifts(waits)
    assert number >= 102
    assert changed("train", shift, None).since_step == 5001


# --- windows ---


def test_windows_follow_each_other_without_a_gap() -> None:
    windows = WindowSum(4)
    found = [windows.add(MS, 5 * MS, n * 5 * MS, 8) for n in range(1, 10)]
    first, second = (one for one in found if one is not None)
    assert (first.first_step, first.last_step, second.first_step, second.last_step) == (1, 4, 5, 8)
    assert (first.begin_ns, first.end_ns) == (0, 20 * MS)
    assert first.wait_s == pytest.approx(0.001)
    assert first.wait_share == pytest.approx(0.2)
    assert first.samples_per_s == pytest.approx(8 / 0.005)
    assert first.steps_per_s == pytest.approx(200)
    rest = windows.so_far()
    assert rest is not None
    assert (rest.first_step, rest.last_step) == (9, 9)


def test_one_batch_of_unknown_size_makes_the_sum_unknown_for_that_window_alone() -> None:
    windows = WindowSum(2)
    found = [windows.add(MS, MS, MS, size) for size in (8, -1, 8, 8)]
    assert [one.samples for one in found if one is not None] == [None, 16]


def test_no_time_at_all_divides_nothing() -> None:
    windows = WindowSum(1)
    assert windows.so_far() is None
    empty = windows.add(0, 0, 0, 8)
    assert empty is not None
    assert (empty.wait_share, empty.steps_per_s, empty.samples_per_s) == (None, None, None)
