"""Long paths in a terminal: broken after separators."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.measure import Measurement
from rich.text import Text

from unstarve.present.terminal.path_text import PathText

PATH = "/home/somebody/projects/segmentation/experiments/2026/train_with_everything.py:41"


def printed(text: str, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, markup=False).print(PathText(Text(text)))
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("width", [30, 40, 60])
def test_a_path_that_does_not_fit_is_broken_after_separators(width: int) -> None:
    lines = printed(f"the loader at {PATH} was left alone", width)
    assert max(map(len, lines)) <= width
    assert "".join(line.replace(" ", "") for line in lines) == f"theloaderat{PATH}wasleftalone"
    inside = [line for line in lines if "/" in line][:-1]
    assert len(inside) > 0
    assert all(line.endswith("/") for line in inside)


def test_a_path_that_fits_a_line_stays_whole() -> None:
    lines = printed(f"here is the place: {PATH}", len(PATH))
    assert lines == ["here is the place:", PATH]


def test_a_name_longer_than_a_line_is_folded_and_nothing_is_lost() -> None:
    assert printed("/a/" + "x" * 25, 10) == ["/a/", "x" * 10, "x" * 10, "x" * 5]
    assert "".join(printed("é中" * 12, 7)) == "é中" * 12


def test_words_are_wrapped_as_ever_and_lines_kept() -> None:
    assert printed("one two three\n\nfour", 8) == ["one two", "three", "", "four"]


def test_it_needs_no_more_room_than_its_longest_name() -> None:
    console = Console(width=200)
    needed = Measurement.get(console, console.options, PathText(Text(PATH)))
    assert needed.minimum == len("train_with_everything.py:41")
    assert needed.maximum == len(PATH)
