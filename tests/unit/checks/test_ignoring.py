"""What the user does not want to see: by id, by the project, by a comment."""

from __future__ import annotations

from pathlib import Path

import pytest

from unstarve.checks.ignoring import check_ids, ignores, kept
from unstarve.checks.user_config import CheckConfig, read_config
from unstarve.errors import UsageError
from unstarve.model.checks import finding


@pytest.mark.parametrize(
    ("line", "ignored"),
    [
        ("x = DataLoader(d)  # unstarve: ignore[no-workers]", True),
        ("x = DataLoader(d)  # unstarve: ignore[order, no-workers]", True),
        ("x = DataLoader(d)  # unstarve: ignore", True),
        ("x = DataLoader(d)  # noqa  # unstarve:ignore[no-workers]", True),
        ("x = DataLoader(d)  # unstarve: ignore[order]", False),
        ("x = DataLoader(d)  # unstarve: ignore[]", False),
        ("x = DataLoader(d)", False),
    ],
)
def test_a_comment_ignores_what_it_names(line: str, ignored: bool) -> None:
    assert ignores(line, "no-workers") is ignored


def test_only_the_line_of_the_finding_counts(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("# unstarve: ignore\nloader = 1\n")
    first, second = (finding("no-workers", "", "", file=str(file), line=line) for line in (1, 2))
    nowhere = finding("no-workers", "", "")
    assert kept([first, second, nowhere]) == [second, nowhere]
    assert kept([second, nowhere], ["no-workers"]) == []


def test_an_unknown_id_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no check 'no-worker'; did you mean no-workers\?"):
        check_ids(["no-worker"])
    with pytest.raises(UsageError, match=r"docs/checks\.md"):
        check_ids(["%%%"])


def test_the_nearest_pyproject_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.unstarve.check]\nignore = ['order']\nfail-on = 'error'\n")
    assert read_config(inner) == CheckConfig(frozenset({"order"}), "error")
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert read_config(inner) == CheckConfig()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[tool.unstarve.check]\nignore = ['ordre']", "there is no check 'ordre'; did you mean order"),
        ("[tool.unstarve.check]\nignore = 'order'", "ignore must be a list of ids"),
        ("[tool.unstarve.check]\nfail_on = 'error'", "there is no setting 'fail_on'"),
        ("[tool.unstarve.check]\nfail-on = 'fatal'", "fail-on must be one of error, warning, note, never"),
        ("[tool]\nunstarve = 3", "must be a table"),
        ("[tool", "cannot read"),
    ],
)
def test_a_wrong_section_is_a_sentence_with_the_file(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError, match=r"pyproject\.toml") as caught:
        read_config(tmp_path)
    assert sentence in str(caught.value)
