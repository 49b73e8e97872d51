"""Text from elsewhere, made safe to print."""

from __future__ import annotations

import sys

import pytest

from hostile_names import EVERYTHING, STEERING, unsafe
from unstarve.words import MOST_LETTERS, printable


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
