"""The result of `unstarve check` on a narrow terminal."""

from __future__ import annotations

import io

from rich.console import Console

from unstarve.model.check_report import CheckedLoader, CheckReport
from unstarve.model.checks import finding
from unstarve.present.terminal.check_card import print_check


def shown(report: CheckReport) -> str:
    console = Console(file=io.StringIO(), width=80, markup=False, emoji=False)
    print_check(report, console)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    assert all(len(line) <= 80 for line in text.splitlines())
    return " ".join(text.split())


def test_findings_are_counted_and_listed() -> None:
    found = (
        finding("shm-full", "seen", "change", file="train.py", line=3),
        finding("no-workers", "seen too", "change"),
        finding("not-pinned", "seen \x1b[31m", "def f():\n    return \x1b[31m"),
    )
    text = shown(CheckReport("train.py", found, (CheckedLoader("loader"),), stopped_at="loader"))
    assert text.startswith("1 error and 2 warnings in train.py")
    assert "error shm-full train.py:3" in text
    assert "\x1b" not in text
    assert "def f(): return \\x1b[31m" in text
    assert text.endswith("train.py was ended after the first batches of loader.")


def test_a_healthy_target_says_what_was_looked_at() -> None:
    loaders = tuple(CheckedLoader(f"loader{n}", "a.py", n) for n in range(6))
    text = shown(CheckReport("a.py", (), loaders, checks=31))
    assert text == (
        "Nothing found: 31 checks looked at loader0 (a.py:0), loader1 (a.py:1), loader2 (a.py:2), loader3 "
        "(a.py:3) and 2 others."
    )


def test_what_could_not_be_checked_is_said() -> None:
    loader = CheckedLoader(
        "val_loader", workers=2, pickled_bytes=10**9, pickle_s=2.0, problem="val_loader failed: x"
    )
    text = shown(CheckReport("a.py", (), (loader,), import_s=1.5, problems=("a.py failed",)))
    assert "importing torch 1.50 s" in text
    assert "val_loader: dataset pickled 2.00 s, 1.0 GB to each of 2 workers" in text
    assert "note: a.py failed" in text
    assert "note: val_loader failed: x; checks that look at batches did not run on it" in text
