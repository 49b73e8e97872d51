"""Every code block of README and docs works: Python runs, commands parse, configuration is well-formed."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
import yaml

from doc_blocks import PAGES, ROOT, Block, blocks
from unstarve.cli.app import app, separate
from unstarve.cli.reference import verb_references

VERBS = {one.name.split()[0] for one in verb_references()}
FRAGMENTS = ROOT / "docs" / "checks.md"
"""Its blocks are changes to a script of the reader's: they are compiled, not run."""

_RUN_PAGES = """
import os, sys
from pathlib import Path
import matplotlib
matplotlib.use("Agg")
from doc_blocks import blocks, reader_scope
for line in sys.stdin:
    page, folder = map(Path, line.split())
    child = os.fork()
    if child == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(os.open(folder / "said", os.O_WRONLY | os.O_CREAT), 1)
os.dup2(1, 2)
os.chdir(folder)
scope = reader_scope(folder)
for block in blocks(page):
    if block.language == "python" and block.not_run is None:
        print("running", block.place, flush=True)
        quick = block.text.replace("budget_s=2)", "budget_s=0.1)")
        exec(compile(quick, block.place, "exec"), scope)
"""
"""Pages run in forks of a process that has imported torch, which takes longer than their blocks."""


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def of_language(*languages: str) -> list[Block]:
    return [one for page in PAGES for one in blocks(page) if one.language in languages]


@pytest.mark.parametrize("block", of_language("python"), ids=lambda block: block.place)
def test_python_is_valid(block: Block) -> None:
    text = re.sub(r"def __init__\(self, \.\.\.\)", "def __init__(self, *given)", block.text)
    try:
        ast.parse(text)
    except SyntaxError:  # the head of a loop, without the reader's own body
        ast.parse(textwrap.dedent(text) + "    ...\n")


RUN = [
    page
    for page in PAGES
    if page != FRAGMENTS and any(b.language == "python" and b.not_run is None for b in blocks(page))
]


@pytest.fixture(scope="module")
def reader() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", _RUN_PAGES],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests" / "helpers")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:  # the end of its input ends it
        yield process


@pytest.mark.parametrize("page", RUN, ids=named)
def test_python_runs(page: Path, reader: subprocess.Popen[str], tmp_path: Path) -> None:
    assert reader.stdin is not None
    assert reader.stdout is not None
    print(page, tmp_path, file=reader.stdin, flush=True)
    exit_code = reader.stdout.readline().strip()
    assert exit_code == "0", (tmp_path / "said").read_text()


def commands() -> list[tuple[str, str]]:
    found = []
    for block in of_language("", "bash", "console", "text"):
        prompted = block.text.startswith("$ ")  # the other lines are output
        for number, line in enumerate(block.text.splitlines()):
            if prompted and not line.startswith("$ "):
                continue
            words = line.strip().removeprefix("$ ").split()
            if len(words) > 1 and words[0] == "unstarve" and words[1] in VERBS:
                place = f"{named(block.page)}:{block.line + number + 1}"
                found.append((place, line.strip().removeprefix("$ ")))
    return found


@pytest.mark.parametrize(("place", "line"), commands(), ids=[place for place, _ in commands()])
def test_commands_parse(place: str, line: str) -> None:
    line = re.split(r" [|>&]+ ", line)[0].replace(" PID", " 4711")
    words = separate(shlex.split(line, comments=True)[1:])
    command = typer.main.get_command(app)
    while getattr(command, "commands", None):
        command = command.commands[words.pop(0)]
    command.make_context("unstarve", words)  # raises on an option or a value it does not know


@pytest.mark.parametrize("block", of_language("toml", "json", "yaml"), ids=lambda block: block.place)
def test_configuration_is_well_formed(block: Block) -> None:
    parse = {"toml": tomllib.loads, "json": json.loads, "yaml": yaml.safe_load}[block.language]
    assert parse(block.text)
