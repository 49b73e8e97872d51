"""The pages on causes and on the run file name what the code has, and nothing else."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from unstarve.advise import rules
from unstarve.model import Cause
from unstarve.record import format as f
from unstarve.record import metas

DOCS = Path(__file__).parents[3] / "docs"
CAUSES = DOCS / "causes"
RULES = Path(next(iter(rules.__path__)))


def advice_ids() -> set[str]:
    """The ids that rules give to their advice: the first text among the arguments of these calls."""
    makers = {"Proposal", "Advice", "Rejected", "_worker_advice"}
    found = set()
    for source in RULES.glob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in makers:
                texts = (
                    a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)
                )
                found |= {text for text in texts if re.fullmatch(r"[a-z]+(-[a-z]+)+", text)}
    return found


def named_advice(page: Path) -> set[str]:
    """The ids in a page's table of advice."""
    table = page.read_text().partition("| advice |")[2].partition("\n\n")[0]
    return set(re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE))


def test_every_cause_has_a_page_and_every_page_a_cause() -> None:
    assert {page.stem for page in CAUSES.glob("*.md")} == {*Cause, "index"}


@pytest.mark.parametrize("cause", Cause)
def test_the_page_of_a_cause_names_advice_that_exists(cause: Cause) -> None:
    page = CAUSES / f"{cause}.md"
    assert page.read_text().startswith(f"# `{cause}`")
    assert named_advice(page) <= advice_ids()


def test_every_advice_stands_on_the_page_of_a_cause() -> None:
    named = set().union(*(named_advice(CAUSES / f"{cause}.md") for cause in Cause))
    assert advice_ids() <= named


def test_the_page_on_run_files_names_every_kind_of_row_and_of_meta() -> None:
    text = (DOCS / "run-format.md").read_text()
    kinds = {row.__name__ for row in f.ROWS.values()}
    told = (line.split()[0] for line in (metas.__doc__ or "").splitlines() if line.startswith("    "))
    documented = {word for word in told if f'"{word}": {{' in Path(metas.__file__).read_text()}
    assert documented
    assert [name for name in sorted(kinds | documented) if f"`{name}`" not in text] == []
    assert f"| {f.VERSION} |" in text
