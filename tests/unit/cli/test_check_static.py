"""`unstarve check --static`: findings, exit codes, and what leaves findings out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unstarve.cli import main

PLANTED = """
from torch.utils.data import DataLoader, IterableDataset

class Lines(IterableDataset):
    def __iter__(self):
        yield from open("lines.txt")

loader = DataLoader(Lines(), num_workers=4)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PLANTED)
    return tmp_path


def exit_code(*arguments: object) -> int:
    with pytest.raises(SystemExit) as left:
        main(["check", "--static", *map(str, arguments)])
    return int(left.value.code or 0)


def test_a_finding_fails_and_is_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(folder) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("1 error in ")
    assert "error iterable-not-split" in shown
    assert "each of the 4 workers of loader delivers all" in " ".join(shown.split())


def test_options_may_follow_the_paths(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(folder / "train.py", "--json", "-", "--fail-on", "never") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["files"]) == ("unstarve.check/1", 1)
    assert [one["id"] for one in told["findings"]] == ["iterable-not-split"]


def test_findings_are_left_out_by_id_by_comment_and_by_project(folder: Path) -> None:
    assert exit_code(folder, "--ignore", "iterable-not-split") == 0
    (folder / "train.py").write_text(PLANTED.replace("(self):", "(self):  # unstarve: ignore"))
    assert exit_code(folder) == 0
    (folder / "train.py").write_text(PLANTED)
    (folder / "pyproject.toml").write_text('[tool.unstarve.check]\nignore = ["iterable-not-split"]\n')
    assert exit_code(folder) == 0


def test_what_cannot_be_parsed_is_told_and_does_not_fail(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "train.py").write_text("class Dataset(:\n")
    assert exit_code(folder) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("Nothing found: 14 checks looked at 1 file.")
    assert "is not valid Python for this version, and was not read" in shown


def test_a_missing_path_is_bad_usage(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(folder / "none.py") == 2
    assert "there is no" in capsys.readouterr().err
