"""Where the user's own command begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from unstarve.cli.app import misplaced, separate


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


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("run -- SCRIPT --html a.html", "--html"),
        ("run -q -- SCRIPT 3 --stop-after=2", "--stop-after"),
        ("tune -- SCRIPT --write", "--write"),
        ("run -- SCRIPT --steps 9", None),  # the script has it
        ("run -- SCRIPT --on-hang raise", None),  # it has a name like it
        ("run --html a.html -- SCRIPT", None),
        ("run -- SCRIPT -o a", None),
        ("run -- missing.py --html a.html", None),
        ("run -- torchrun SCRIPT --html a.html", None),
        ("report a.unstarve --html a.html", None),
        ("typo -- SCRIPT --html a.html", None),
        ("-- SCRIPT --html a.html", None),
        ("", None),
    ],
)
def test_an_option_after_the_script_that_the_script_does_not_know_is_named(
    tmp_path: Path, line: str, name: str | None
) -> None:
    script = tmp_path / "train.py"
    script.write_text("parser.add_argument('--steps')\non_hang = 'wait'\n")
    said = misplaced(line.replace("SCRIPT", str(script)).split())
    if name is None:
        assert said is None
    else:
        assert said is not None
        assert said.startswith(f"{name} comes after {script} and so belongs to it;")
