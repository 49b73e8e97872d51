"""What keys do, and which bytes are keys."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from unstarve.cli.keys import Keys
from unstarve.cli.top import press
from unstarve.present.terminal.live_view import Look, WorkerOrder


def pressed(keys: str, count: int = 1) -> Look | None:
    look: Look | None = Look()
    for key in keys.split():
        assert look is not None
        look = press(look, key, count)
    return look


def test_q_leaves_and_an_unknown_key_does_nothing() -> None:
    assert pressed("q") is None
    assert pressed("x 7 up") == Look()


def test_help_and_pause_go_on_and_off() -> None:
    assert pressed("? p") == Look(helps=True, paused=True)
    assert pressed("? p ? p") == Look()


def test_w_goes_through_the_orders_of_workers() -> None:
    looks = [pressed(" ".join("w" * presses)) for presses in range(4)]
    orders = [look.order for look in looks if look is not None]
    assert orders == [WorkerOrder.PLACE, WorkerOrder.BUSIEST, WorkerOrder.NONE, WorkerOrder.PLACE]


def test_pages_go_round_by_way_of_whichever_trains() -> None:
    looks = [pressed(" ".join(["right"] * presses), count=2) for presses in range(5)]
    assert [look.page for look in looks if look is not None] == [None, 0, 1, None, 0]
    assert pressed("left", count=3) == Look(page=2)
    assert pressed("left left", count=3) == Look(page=1)
    assert pressed("right", count=1) == Look()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (b"q", ["q"]),
        (b"wp?", ["w", "p", "?"]),
        (b"\x1b[C", ["right"]),
        (b"\x1bOD", ["left"]),
        (b"\t", ["right"]),
        (b"\x1b[Z", ["left"]),
        (b"\x1b", ["q"]),
        (b"\x1b[24~", []),
        (b" h", ["p", "?"]),
        ("é".encode(), ["�", "�"]),
    ],
)
def test_bytes_become_keys(pipe: tuple[int, int], data: bytes, names: list[str]) -> None:
    reading, writing = pipe
    quiet, other = os.pipe()
    os.write(writing, data)
    keys = Keys(reading, quiet)
    found = []
    while (key := keys.wait(0)) is not None:
        found.append(key)
    assert found == names
    os.close(quiet)
    os.close(other)
