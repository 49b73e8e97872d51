"""Where the user's own command begins."""

from __future__ import annotations

import pytest

from unstarve.cli.app import separate


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("run train.py", "run -- train.py"),
        ("run train.py --steps 5 -o x", "run -- train.py --steps 5 -o x"),
        ("run --steps 5 train.py --lr 1", "run --steps 5 -- train.py --lr 1"),
        ("run --steps=5 -q train.py -q", "run --steps=5 -q -- train.py -q"),
        ("run -m pkg.train --json x", "run -- -m pkg.train --json x"),
        ("run -o a.unstarve -m pkg", "run -o a.unstarve -- -m pkg"),
        ("run -- -m pkg -- x", "run -- -m pkg -- x"),
        ("run -o a torchrun --nproc-per-node 2 -m x", "run -o a -- torchrun --nproc-per-node 2 -m x"),
        ("ideal --pairs 3 train.py --pairs 9", "ideal --pairs 3 -- train.py --pairs 9"),
        ("run --typo train.py", "run --typo -- train.py"),
        ("run --help", "run --help"),
        ("report a.unstarve", "report a.unstarve"),
        ("check --ignore order train.py --json x", "check --ignore order -- train.py --json x"),
        ("check data.py:loader --json -", "check data.py:loader --json -"),
        ("check package.data:make --github", "check package.data:make --github"),
        ("--version", "--version"),
        ("", ""),
    ],
)
def test_none_of_the_commands_arguments_is_taken_for_ours(line: str, expected: str) -> None:
    assert separate(line.split()) == expected.split()
