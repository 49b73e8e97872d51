"""Every verb explains itself, with examples that the real command line understands."""

from __future__ import annotations

import shlex

import pytest
import typer

from unstarve.cli.app import app, separate
from unstarve.cli.help_text import help_text
from unstarve.cli.reference import VerbReference, verb_references

VERBS = verb_references()


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_help_fits_80_columns_and_explains_every_parameter(verb: VerbReference) -> None:
    assert verb.summary.endswith(".")
    assert all(one.help for one in (*verb.arguments, *verb.options))
    assert all(len(line) <= 80 for line in help_text(verb, 80).splitlines())


@pytest.mark.parametrize("verb", [one for one in VERBS if not one.verbs], ids=lambda verb: verb.name)
def test_examples_parse(verb: VerbReference) -> None:
    assert 2 <= len(verb.examples) <= 4
    for example in verb.examples:
        program, *words = shlex.split(example.line.partition(" | ")[0])
        assert program == "unstarve"
        command = typer.main.get_command(app)
        words = separate(words)
        for name in verb.name.split():
            assert words.pop(0) == name
            command = command.commands[name]
        command.make_context(verb.name, words)  # raises on an option or a value it does not know


def test_help_shows_the_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        app(args=["run", "--help"], prog_name="unstarve")
    assert ended.value.code == 0
    assert "unstarve run train.py --epochs 3" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["lab"]])
def test_without_a_verb_the_help_is_shown(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        app(args=words, prog_name="unstarve")
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "Verbs:" in shown
    assert "Examples:" in shown


@pytest.mark.parametrize(
    ("typed", "completed"), [("comp", "compare"), ("lab st", "start"), ("lab start io", "io-dataloader")]
)
def test_the_shell_completes_verbs_and_labs(
    typed: str, completed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_UNSTARVE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"unstarve {typed}")
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split())))
    with pytest.raises(SystemExit):
        app(args=[], prog_name="unstarve")
    assert capsys.readouterr().out.split() == [completed]
