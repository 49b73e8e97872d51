"""The forms for issues ask for commands that exist; CI starts at the oldest Python that is supported."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import typer
import yaml

from unstarve.cli.app import app, separate

ROOT = Path(__file__).parents[2]
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))


@pytest.mark.parametrize("form", [one for one in FORMS if one.stem != "config"], ids=lambda form: form.stem)
def test_commands_in_a_form_parse(form: Path) -> None:
    lines = re.findall(r"`unstarve ([a-z][^`]*)`", form.read_text())
    assert "report RUN --json -" in lines
    for line in lines:
        verb, *words = separate(line.split())
        command = typer.main.get_command(app)
        command.commands[verb].make_context(verb, words)  # type: ignore[attr-defined]


def test_ci_starts_at_the_oldest_python() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = jobs["linux"]["strategy"]["matrix"]["python"]
    assert project["requires-python"] == f">={versions[0]}"
    named = [one.rpartition(" ")[2] for one in project["classifiers"] if ":: Python :: 3." in one]
    assert set(named) <= set(versions)
