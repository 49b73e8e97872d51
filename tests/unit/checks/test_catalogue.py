"""The list of checks: each is documented, planted by a test, and written like the others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unstarve.model.checks import CHECKS, by_harm, finding
from unstarve.model.finding import Severity

ROOT = Path(__file__).parents[3]
SECTIONS = dict(
    re.findall(r"(?ms)^## ([a-z-]+)\n\n(.*?)(?=^## |\Z)", (ROOT / "docs" / "checks.md").read_text())
)
TESTS = {
    path: path.read_text()
    for folder in ("unit/checks", "integration", "unit/collect", "unit/evaluate")
    for path in (ROOT / "tests" / folder).rglob("test_*.py")
    if path != Path(__file__)
}


def test_there_are_more_than_forty() -> None:
    assert len(CHECKS) >= 40


def test_every_section_of_the_documentation_is_about_a_check() -> None:
    assert SECTIONS.keys() == CHECKS.keys()


@pytest.mark.parametrize("id", CHECKS)
def test_a_check_is_documented_under_its_title_and_says_when_it_is_silent(id: str) -> None:
    section = SECTIONS[id]
    assert section.startswith(f"**{CHECKS[id].title}.**")
    assert "*Detected*" in section
    assert "*Silent*" in section


@pytest.mark.parametrize("id", CHECKS)
def test_some_test_plants_the_trouble(id: str) -> None:
    assert any(re.search(rf'"{id}["\s]', text) for text in TESTS.values())


@pytest.mark.parametrize("id", CHECKS)
def test_a_title_is_short_and_a_reason_is_made_of_sentences(id: str) -> None:
    check = CHECKS[id]
    assert check.id == id
    assert len(check.title) <= 60
    assert not check.title.endswith(".")
    assert check.why.endswith(".")


def test_the_worst_finding_comes_first() -> None:
    small, large = (finding("order", "m.", "f.", harm=harm) for harm in (0.1, 0.4))
    wrong = finding("same-order", "m.", "f.")
    assert [one.severity for one in (wrong, small)] == [Severity.ERROR, Severity.WARNING]
    assert by_harm([small, large, wrong]) == [wrong, large, small]
