"""What `unstarve check` says about targets, limits and its exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from unstarve.checks.user_config import CheckConfig
from unstarve.cli import check as verb
from unstarve.cli.check import FailOn, is_named
from unstarve.errors import UsageError
from unstarve.model.check_report import CheckedLoader, CheckReport
from unstarve.model.checks import finding
from unstarve.model.finding import Severity


@pytest.mark.parametrize(
    ("target", "named"),
    [
        ("data.py:loader", True),
        ("a/b/data.py:make", True),
        ("package.data:loaders.train", True),
        ("train.py", False),
        ("torchrun", False),
        ("data.py:", False),
        (":loader", False),
        ("data.py:load er", False),
        ("host:80", False),
    ],
)
def test_an_attribute_is_told_from_a_script(target: str, named: bool) -> None:
    assert is_named([target]) is named


def test_a_file_with_a_colon_in_its_name_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data.py:loader").touch()
    assert not is_named(["data.py:loader"])
    assert not is_named(["data.py:other", "argument"])


def test_a_command_that_ran_out_of_time_says_how_far_it_came() -> None:
    loader = (CheckedLoader("train_loader"),)
    sentences = [
        verb._too_late(report, 120)
        for report in (
            CheckReport("train.py"),
            CheckReport("train.py", loaders=loader),
            CheckReport("train.py", loaders=loader, stopped_at="train_loader"),
        )
    ]
    assert [one.partition(" within ")[0] for one in sentences] == [
        "train.py created no loader",
        "train_loader of train.py did not deliver its first batches",
        "the checks of train.py did not end",
    ]
    assert sentences[0].endswith("within 120 s; allow more with --timeout SECONDS")


def test_the_command_line_comes_before_the_project() -> None:
    project = CheckConfig(fail_on="error")
    assert verb._severity(None, CheckConfig()) is Severity.WARNING
    assert verb._severity(None, project) is Severity.ERROR
    assert verb._severity(FailOn.NOTE, project) is Severity.NOTE
    assert verb._severity(FailOn.NEVER, project) is None


def test_findings_come_before_failures_in_the_exit_code() -> None:
    warned = CheckReport("train.py", (finding("no-workers", "", ""),))
    assert verb._exit_code(warned, Severity.WARNING, failed=True) == 1
    assert verb._exit_code(warned, Severity.ERROR, failed=True) == 2
    assert verb._exit_code(warned, Severity.ERROR, failed=False) == 0
    assert verb._exit_code(warned, None, failed=False) == 0


def test_only_one_output_prints() -> None:
    dash = Path("-")
    with pytest.raises(UsageError, match="only one of --json -, --markdown -, --sarif - and --github"):
        verb._check_outputs(dash, None, dash, github=False)
    with pytest.raises(UsageError, match="only one"):
        verb._check_outputs(None, dash, None, github=True)
    verb._check_outputs(dash, None, None, github=False)
