"""``--json`` means the same for every verb."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from run_files import slow_loading_run, write_run
from unstarve.cli import main
from unstarve.cli.app import app


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "a.unstarve", slow_loading_run(30, workers=2))


def leave(*words: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(list(words))
    return int(left.value.code or 0)


def test_every_verb_that_has_it_takes_a_file() -> None:
    verbs: Any = typer.main.get_command(app)
    options = {
        name: option
        for name, verb in verbs.commands.items()
        for option in verb.params
        if "--json" in option.opts
    }
    assert set(options) == {
        "run", "ideal", "tune", "report", "compare", "top", "pack", "whatif", "bench", "import", "nsys",
        "check",
        "inspect", "merge",
    }  # fmt: skip
    assert {(option.is_flag, option.metavar) for option in options.values()} == {(False, "FILE")}


@pytest.mark.parametrize("verb", ["report", "whatif", "top"])
def test_a_file_and_standard_output_get_the_same(
    verb: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.json"
    assert leave(verb, str(run), "--json", str(file)) == 0
    assert capsys.readouterr().out == ""
    assert leave(verb, str(run), "--json", "-") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed.keys() == json.loads(file.read_text()).keys()


def test_two_outputs_cannot_share_standard_output(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert leave("report", str(run), "--json", "-", "--markdown") == 2
    assert "give one of them" in capsys.readouterr().err
    assert leave("report", str(run), "--json", "/dev/null", "--markdown") == 0
