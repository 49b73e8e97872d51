"""Reports travel as JSON, and those of several ranks become one."""

from __future__ import annotations

import json

from unstarve.model.check_report import CheckedLoader, CheckReport, merged, report_from_plain
from unstarve.model.checks import finding
from unstarve.model.finding import Severity


def report(*ids: str, name: str = "loader", problem: str = "p") -> CheckReport:
    found = tuple(finding(id, f"seen by {name}", "fix", file="a.py", line=3, harm=0.5) for id in ids)
    return CheckReport("", found, (CheckedLoader(name, "a.py", 3, workers=2),), 5, 1.5, 0.5, (problem,), name)


def test_a_report_survives_json() -> None:
    original = report("no-workers", "shm-full")
    assert report_from_plain(json.loads(json.dumps(original.to_plain()))) == original


def test_ranks_are_merged_without_repetition_and_the_worst_comes_first() -> None:
    whole = merged(
        "train.py", [report("no-workers"), report("no-workers", "shm-full"), report("order", name="b")]
    )
    assert [found.id for found in whole.findings] == ["shm-full", "no-workers", "order"]
    assert [one.name for one in whole.loaders] == ["loader", "b"]
    several = [CheckReport("", (), tuple(map(CheckedLoader, names))) for names in ("ab", "ac")]
    assert [one.name for one in merged("train.py", several).loaders] == ["a", "b", "c"]
    assert (whole.target, whole.problems, whole.checks) == ("train.py", ("p",), 5)


def test_a_loader_that_is_created_again_and_again_is_listed_once() -> None:
    one, slow = report("order"), CheckedLoader("loader", "a.py", 3, workers=2, first_batch_s=9.0)
    again = CheckReport("", one.findings * 2, (*one.loaders, slow, CheckedLoader("other")))
    whole = merged("t", [again])
    assert whole.findings == one.findings
    assert whole.loaders == (*one.loaders, CheckedLoader("other"))


def test_one_process_may_find_the_same_twice() -> None:
    twice = (
        finding("order", "first", "fix", file="a.py", line=3),
        finding("order", "x", "fix", file="a.py", line=3),
    )
    assert len(merged("t", [CheckReport("", twice)]).findings) == 2


def test_the_severity_that_counts_is_a_limit() -> None:
    warned = report("no-workers")
    assert warned.at_least(Severity.WARNING)
    assert warned.at_least(Severity.NOTE)
    assert not warned.at_least(Severity.ERROR)
    assert not warned.at_least(None)
