"""Numbers as people read them, and text from elsewhere made safe to print."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import pytest

from hostile_names import EVERYTHING, STEERING, unsafe
from unstarve import words
from unstarve.words import (
    MOST_LETTERS,
    clock,
    duration,
    interval,
    mean_count,
    percent,
    points,
    printable,
    rate,
    times,
    times_interval,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("train [red] :smile: Köln 日本 🙂", "train [red] :smile: Köln 日本 🙂"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b31m", "\\x9b31m"),
        ("a\r\x08b", "a\\x0d\\x08b"),
        ("a\nb\tc", "a b c"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"),
        ("\u2028", "\\u2028"),
        ("\U000e0041", "\\U000e0041"),
        ("\udc80", "\\udc80"),
    ],
)
def test_what_is_no_text_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_nothing_unsafe_is_left_of_any_character() -> None:
    every = "".join(chr(code) for code in range(sys.maxunicode + 1))
    assert unsafe(printable(every, len(every))) == []
    assert "\n" not in printable(every, len(every))


@pytest.mark.parametrize("text", [*STEERING, EVERYTHING])
def test_what_is_safe_stays_as_it_is(text: str) -> None:
    assert printable(printable(text)) == printable(text)


def test_a_name_that_never_ends_is_cut_and_code_keeps_its_lines() -> None:
    assert printable("x" * (MOST_LETTERS + 1)) == "x" * (MOST_LETTERS - 1) + "…"
    assert printable("x" * MOST_LETTERS) == "x" * MOST_LETTERS
    assert printable("a\n\x1bb", lines=True) == "a\n\\x1bb"


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0.64, "64%"), (1.0, "100%"), (0.0996, "10%"), (0.042, "4.2%"), (0.05, "5%"), (0.0042, "0.42%"),
     (0.0002, "0.02%"), (1e-6, "<0.01%"), (0.0, "0%"), (-0.042, "-4.2%")],
)  # fmt: skip
def test_a_share_has_two_digits(share: float, shown: str) -> None:
    assert percent(share) == shown


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [(2.84, 1, "2.8×"), (2.84, 2, "2.84×"), (9.96, 1, "10×"), (28.44, 1, "28×"), (28.44, 2, "28.4×"),
     (0.84, 2, "0.84×"), (100.0, 1, "100×"), (101.0, 1, "more than 100×")],
)  # fmt: skip
def test_a_ratio_has_as_many_digits_as_it_needs(value: float, digits: int, shown: str) -> None:
    assert times(value, digits) == shown


def test_a_measured_ratio_may_be_large() -> None:
    assert times(1234.5, 2, most=math.inf) == "1,234×"


def test_an_interval_stands_in_parentheses() -> None:
    assert interval(2.61, 2.94) == "(2.6–2.9)"
    assert interval(430.2, 1250.0, 2) == "(430–1,250)"
    assert times_interval(2.8, 2.6, 2.9) == "2.8× (2.6–2.9)"
    assert times_interval(250, 90, 900) == "more than 100×"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (3e-9, "3.00 ns"), (41.2e-6, "41.2 µs"), (0.0412, "41.2 ms"), (0.4123, "412 ms"),
     (0.9996, "1.00 s"), (61.34, "61.3 s"), (999.0, "999 s"), (1236.0, "20.6 min"), (19_548.0, "5.43 h")],
)  # fmt: skip
def test_a_time_has_the_unit_that_keeps_three_digits(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_a_time_may_carry_its_deviation() -> None:
    assert duration(182e-6, 6e-6) == "182 ± 6 µs"
    assert duration(1.5e-3, 0.25e-3) == "1.50 ± 0.25 ms"
    assert duration(0.02, tick=True) == "20 ms"


@pytest.mark.parametrize(
    ("seconds", "shown"), [(4.21, "4.2 s"), (41.2, "41 s"), (187, "3:07"), (7387, "2:03:07")]
)
def test_a_clock_runs_in_minutes(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown


@pytest.mark.parametrize(
    ("per_s", "shown"), [(0, "0.00"), (0.0123, "0.012"), (6.716, "6.72"), (43.0, "43.0"), (12_500, "12,500")]
)
def test_a_rate_has_three_digits(per_s: float, shown: str) -> None:
    assert rate(per_s) == shown
    assert rate(12_500, short=True) == "12.5k"


def test_a_difference_of_shares_is_in_points() -> None:
    assert points(-0.031) == "-3.1 points"


def test_no_other_module_formats_a_share_or_a_ratio() -> None:
    package = Path(words.__file__).parent
    by_hand = re.compile(r"""\{[^{}]*:\.\d[%fg]%?\}×|\{[^{}"']*:\.\d%\}(?!;)|\d\} %["']""")
    found = [
        f"{path.relative_to(package)}: {match[0]}"
        for path in package.rglob("*.py")
        if path != Path(words.__file__)
        for match in by_hand.finditer(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(("value", "told"), [(32.0, "32"), (7.5, "7.5"), (1234.0, "1,234"), (99.96, "100")])
def test_a_mean_count_is_whole_where_it_is_exact(value: float, told: str) -> None:
    assert mean_count(value) == told


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (1, "1st"),
        (2, "2nd"),
        (3, "3rd"),
        (4, "4th"),
        (11, "11th"),
        (12, "12th"),
        (21, "21st"),
        (113, "113th"),
    ],
)
def test_a_place_in_an_order_has_its_ending(number: int, shown: str) -> None:
    assert words.ordinal(number) == shown


def test_growth_has_the_time_in_which_it_is_a_megabyte_or_more() -> None:
    assert words.size_rate(4.2e6) == "4 MB a second"
    assert words.size_rate(2e5, 1.8e5, 2.3e5) == "12 MB a minute (11 MB–14 MB)"
    assert words.size_rate(100.0) == "360 KB an hour"


@pytest.mark.parametrize(
    ("count", "told"), [(7, "7"), (97, "97"), (912, "910"), (1234, "1,200"), (99_700, "100,000")]
)
def test_a_forecast_has_two_digits(count: float, told: str) -> None:
    assert words.about(count) == told
    assert words.amount(1_281_167) == "1,281,167"
