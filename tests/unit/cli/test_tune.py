"""The words of `unstarve tune`."""

from __future__ import annotations

import pytest

from unstarve.cli.app import separate
from unstarve.cli.tune import parse_budget
from unstarve.errors import UsageError


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        (None, (None, None)),
        ("90", (90.0, None)),
        ("60s", (60.0, None)),
        ("0.5 s", (0.5, None)),
        ("2min", (120.0, None)),
        ("1h", (3600.0, None)),
        ("200steps", (None, 200)),
        ("1 step", (None, 1)),
    ],
)
def test_a_budget_is_a_time_or_steps(text: str | None, budget: tuple[float | None, int | None]) -> None:
    assert parse_budget(text) == budget


@pytest.mark.parametrize("text", ["", "0", "0s", "-3s", "1.5steps", "ten steps", "5 parsecs"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--budget takes"):
        parse_budget(text)


def test_what_comes_after_the_command_is_the_commands() -> None:
    words = ["tune", "--budget", "60s", "--finish", "--patch", "train.py", "--budget", "9"]
    assert separate(words) == [*words[:5], "--", *words[5:]]
