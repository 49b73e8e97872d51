"""Whatever the texts of a run hold, every output shows them as text."""

from __future__ import annotations

import io
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from hostile_names import EVERYTHING, MARKUP, STEERING, hostile_run, unsafe
from unstarve.api import compare, diagnose, load_run, whatif
from unstarve.cli import main
from unstarve.model import Diagnosis
from unstarve.model.nouns import each_text
from unstarve.present.page.notebook import html_of, text_of
from unstarve.present.terminal.report_card import print_report

ESCAPED = ("\\x1b[2J\\x1b[31m", "\\x9b31m", "\\x08\\x00\\x7f", "\\u202e\\u2066\\u200b", "? ?")
"""How a person sees the first of each sort."""
READ = EVERYTHING.encode("utf-8", "replace").decode()
"""As a run file is read: halves of a pair are question marks."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_run(tmp_path_factory.mktemp("runs") / "a.unstarve")


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "5000")  # no name is broken into two lines


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints, to either stream."""
    with pytest.raises(SystemExit) as left:
        main(list(words))
    assert left.value.code == 0
    said = capsys.readouterr()
    return said.out + said.err


def test_every_sort_is_in_the_run(run: Path) -> None:
    loaded = load_run(run)
    texts = [*loaded.command, *(loader.name for process in loaded.processes for loader in process.loaders)]
    assert texts
    assert all(text.endswith(READ) for text in texts)
    assert diagnose(loaded).advice


@pytest.mark.parametrize(
    "verb", [["report"], ["whatif"], ["top", "--once"], ["report", "--markdown"]], ids=str
)
def test_what_reads_one_run_prints_text(
    run: Path, capsys: pytest.CaptureFixture[str], verb: list[str]
) -> None:
    assert unsafe(printed(capsys, *verb, str(run))) == []


def test_the_report_shows_names_as_they_are(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "report", str(run))
    for shown in (*ESCAPED, "[red]x[/red]", "[/]", "[link=file:///etc/passwd]x[/link]", ":smile:"):
        assert shown in text
    assert not re.search("^second line", text, re.MULTILINE)


def test_a_comparison_is_text_the_names_of_its_files_included(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "\x1b[31m[red]\udc80.unstarve"
    Path(os.fsdecode(os.fsencode(other))).write_bytes(run.read_bytes())
    text = printed(capsys, "compare", str(run), str(other))
    assert unsafe(text) == []
    assert "\\x1b[31m[red]\\udc80" in text


@pytest.fixture(scope="module")
def diagnosis(run: Path) -> Diagnosis:
    return diagnose(load_run(run))


@pytest.mark.parametrize("width", [40, 80, 5000])
@pytest.mark.parametrize("name", [*STEERING, *MARKUP, "x" * 5000, "日本語" * 100])
def test_each_sort_alone_is_shown_at_any_width_and_in_colour(
    diagnosis: Diagnosis, name: str, width: int
) -> None:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system="standard")
    print_report(each_text(diagnosis, lambda text, field: name), console)
    colours_left_out = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert unsafe(colours_left_out) == []


@pytest.mark.parametrize("verb", ["report", "whatif", "top"])
def test_json_is_valid_and_keeps_the_names(run: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    text = printed(capsys, verb, str(run), "--json", "-")
    assert json.loads(text)
    assert unsafe(text.replace("\x7f", "")) == []  # which JSON does not escape, and terminals ignore


def test_files_are_what_they_claim_to_be(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, metrics, trace = (tmp_path / name for name in ("a.html", "a.prom", "a.json"))
    events = tmp_path / "events"
    printed(capsys, "report", str(run), "--html", str(page), "--prometheus", str(metrics))
    printed(capsys, "report", str(run), "--tensorboard", str(events))
    printed(capsys, "trace", str(run), "-o", str(trace))
    assert json.loads(trace.read_text())["traceEvents"]
    assert len(list(events.iterdir())) == 1
    assert "<img" not in page.read_text()
    lines = metrics.read_text(encoding="utf-8").splitlines()
    assert unsafe("\n".join(lines)) == []
    plain = re.compile(r'unstarve_\w+(\{\w+="([^"\\]|\\[\\"n])*"(,\w+="([^"\\]|\\[\\"n])*")*\})? \S+')
    assert all(line.startswith("# ") or plain.fullmatch(line) for line in lines)


def test_markdown_keeps_its_shape(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "report", "--markdown", str(run))
    prose = re.sub(r"(?ms)^(`{3,})python\n.*?^\1$|(?<!`)(`+)(?!`).*?(?<!`)\2(?!`)", "", text)
    assert not re.search(r"(?<!\\)<|(?<!\\)\]\(|^# ", prose, re.MULTILINE)
    rows = [line for line in text.splitlines() if line.startswith("| command")]
    assert len(re.findall(r"(?<!\\)\|", rows[0])) == 3


class _Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)


def test_a_notebook_shows_text(run: Path) -> None:
    loaded = load_run(run)
    for result in (diagnose(loaded), compare(run, run), whatif(loaded)):
        assert unsafe(text_of(result)) == []
        assert unsafe(html_of(result)) == []
        assert _Tags(html_of(result)).tags <= {
            "div",
            "span",
            "b",
            "ul",
            "li",
            "table",
            "tr",
            "td",
            "th",
            "pre",
        }


@pytest.mark.parametrize("verb", ["report", "whatif", "top", "trace", "serve"])
def test_an_error_about_a_hostile_name_is_one_line_of_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    with pytest.raises(SystemExit) as left:
        main([verb, str(tmp_path / "\x1b[2J\x9b31m\nunstarve: all is well[red]")])
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert unsafe(said) == []
    assert said.count("\n") == 1
    assert "\\x1b[2J\\x9b31m unstarve: all is well[red]" in said
