"""``%%unstarve`` in a real IPython shell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from unstarve.errors import UsageError
from unstarve.model import Diagnosis

SETUP = """
import torch
from torch.utils.data import DataLoader, TensorDataset
train_loader = DataLoader(TensorDataset(torch.arange(100)), batch_size=4)
"""


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch_as_it_was: None
) -> Iterator[InteractiveShell]:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)  # IPython warns of one that is not its own
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    InteractiveShell.clear_instance()
    # No history: it would be kept by a thread in a file.
    shell = InteractiveShell.instance(
        config=Config({"HistoryManager": {"enabled": False, "hist_file": ":memory:"}}), colors="nocolor"
    )
    shell.run_line_magic("load_ext", "unstarve")
    assert shell.run_cell(SETUP).success
    yield shell
    InteractiveShell.clear_instance()


def run(shell: InteractiveShell, cell: str) -> tuple[Any, str, list[Any]]:
    """The cell's result, what it printed, and what it displayed."""
    with capture_output() as captured:
        result = shell.run_cell(cell)
    return result, captured.stdout, captured.outputs


def test_a_cell_is_recorded_and_followed_by_its_verdict(shell: InteractiveShell) -> None:
    result, printed, shown = run(
        shell, "%%unstarve\nfor batch in train_loader:\n    last = batch\nprint('hi')"
    )
    assert result.success
    assert "hi" in printed
    (verdict,) = shown
    assert verdict.data["text/html"].startswith("<div")
    assert "where the time went" in verdict.data["text/plain"]
    diagnosis = shell.user_ns["_unstarve"]
    assert isinstance(diagnosis, Diagnosis)
    assert [(loader.name, loader.steps) for loader in diagnosis.loaders] == [("train_loader", 25)]
    assert int(shell.user_ns["last"][0][-1]) == 99


def test_the_last_expression_is_shown_as_in_any_cell(shell: InteractiveShell) -> None:
    _, printed, _ = run(shell, "%%unstarve --quiet\nx = len(list(train_loader))\nx + 1")
    assert "26" in printed
    _, printed, shown = run(shell, "%%unstarve --quiet\nx + 2;")
    assert "27" not in printed
    assert shown == []


def test_magics_work_inside(shell: InteractiveShell) -> None:
    result, printed, _ = run(shell, "%%unstarve -q\n%time list(train_loader)[0]\n!echo from the shell")
    assert result.success
    assert "Wall time" in printed


def test_an_exception_comes_out_as_it_is_and_the_verdict_is_shown_too(shell: InteractiveShell) -> None:
    cell = "%%unstarve\nfor n, batch in enumerate(train_loader):\n    if n == 7:\n        1 / 0"
    result, printed, shown = run(shell, cell)
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    assert printed.count("ZeroDivisionError: division by zero") == 1
    assert "1 / 0" in printed
    assert len(shown) == 1
    assert shell.user_ns["_unstarve"].loaders[0].steps == 8


def test_a_syntax_error_is_the_users_own(shell: InteractiveShell) -> None:
    result, _, _ = run(shell, "%%unstarve\nfor in x")
    assert isinstance(result.error_in_exec, SyntaxError)


def test_the_run_can_be_kept(shell: InteractiveShell, tmp_path: Path) -> None:
    target = tmp_path / "my run.unstarve"
    result, _, _ = run(shell, f"%%unstarve -q -o '{target}'\nlist(train_loader)")
    assert result.success
    assert target.is_file()


def test_an_option_that_does_not_exist_is_named(shell: InteractiveShell) -> None:
    result, _, _ = run(shell, "%%unstarve --fast\n1")
    assert isinstance(result.error_in_exec, UsageError)
    assert "--fast" in str(result.error_in_exec)
