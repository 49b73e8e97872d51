"""A bar on a terminal, now and then a line in a log."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from unstarve import progress as progress_module
from unstarve.progress import progress, stages


def shown(console: Console, total: int | None) -> str:
    with progress(console, "packed") as bar:
        bar.reach(1, total)
        bar.note("something [odd]")
        bar.reach(50, total)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_log_gets_lines_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = shown(Console(file=StringIO(), width=80), 200)
    assert quiet == "unstarve: something [odd]\n"
    monkeypatch.setattr(progress_module, "_LINE_EVERY_S", 0.0)
    log = shown(Console(file=StringIO(), width=80), 200)
    assert log.splitlines()[-1] == "unstarve: 50 of 200 (25%) samples packed"
    assert "unstarve: 50 samples packed" in shown(Console(file=StringIO(), width=80), None)


@pytest.mark.parametrize("total", [200, None])
def test_a_terminal_gets_a_bar_that_goes_away(monkeypatch: pytest.MonkeyPatch, total: int | None) -> None:
    monkeypatch.setattr(progress_module, "_BAR_EVERY_S", 0.0)
    drawn = shown(Console(file=StringIO(), force_terminal=True, width=80), total)
    assert "50/" in drawn
    assert "unstarve: something [odd]" in drawn
    assert drawn.endswith("\x1b[2K")  # the line of the bar is cleared


def test_nothing_is_shown_without_a_console_or_in_a_log_that_is_not_wanted() -> None:
    console = Console(file=StringIO(), width=80)
    for one in (console, None):
        with progress(one, "cached", log=False) as bar:
            assert not bar.is_due()
            bar.reach(1, 2)
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue() == ""


def test_stages_are_lines_in_a_log_and_one_line_on_a_terminal() -> None:
    for is_terminal in (False, True):
        console = Console(file=StringIO(), force_terminal=is_terminal, width=80)
        with stages(console) as shown:
            shown.stage("1 of 2: samples [all]")
            shown.detail("half done")
            shown.stage("2 of 2: batches")
        assert isinstance(console.file, StringIO)
        text = console.file.getvalue()
        assert "unstarve: 1 of 2: samples [all]" in text
        assert ("half done" in text) is is_terminal
        assert is_terminal == text.endswith("\x1b[2K")
        assert is_terminal or text.splitlines()[-1] == "unstarve: 2 of 2: batches"
