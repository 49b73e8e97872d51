"""Findings for code hosts: SARIF fits its schema, annotations and Markdown cannot be broken out of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from json_schema import violations
from unstarve.model.check_report import CheckedLoader, CheckReport
from unstarve.model.checks import CHECKS, finding
from unstarve.model.finding import Finding
from unstarve.present.exports.check_json import check_json
from unstarve.present.exports.check_markdown import check_markdown
from unstarve.present.exports.github_annotations import github_annotations
from unstarve.present.exports.sarif import sarif

SCHEMA = json.loads((Path(__file__).parents[3] / "data/sarif-2.1.0.schema.json").read_text())


def findings() -> list[Finding]:
    every = [finding(id, "seen", "change it", file="a/train.py", line=3) for id in CHECKS]
    odd = finding("shm-full", "100% of\n/dev/shm: 5,000 MB", "a, b", file="a dir/ü,x:y.py", line=7)
    return [*every, odd, finding("no-workers", "no line", "fix"), finding("order", "x", "y", file="/else.py")]


def test_sarif_fits_the_official_schema() -> None:
    for found in ([], findings()):
        log = json.loads(json.dumps(sarif(found, "0.1.0", "train.py")))
        assert list(violations(log, SCHEMA, SCHEMA)) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda log: log.pop("runs"),
        lambda log: log.update(version="2.0.0"),
        lambda log: log["runs"][0].update(surprise=1),
        lambda log: log["runs"][0]["results"][0].update(level="fatal"),
        lambda log: log["runs"][0]["results"][0]["locations"][0]["physicalLocation"].update(
            region={"startLine": 0}
        ),
        lambda log: log["runs"][0]["tool"]["driver"].pop("name"),
    ],
)
def test_the_schema_would_notice(damage: Any) -> None:
    log = sarif(findings(), "0.1.0")
    damage(log)
    assert list(violations(log, SCHEMA, SCHEMA))


def test_every_result_of_sarif_names_its_rule_and_place() -> None:
    found = findings()
    (run,) = sarif(found, "0.1.0", "train.py")["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rules[one["ruleIndex"]]["id"] for one in run["results"]] == [one.id for one in found]
    places = [one["locations"][0]["physicalLocation"] for one in run["results"]]
    assert places[0] == {
        "artifactLocation": {"uri": "a/train.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 3},
    }
    assert places[-3]["artifactLocation"]["uri"] == "a%20dir/%C3%BC%2Cx%3Ay.py"
    assert places[-2] == {"artifactLocation": {"uri": "train.py", "uriBaseId": "%SRCROOT%"}}
    assert places[-1] == {"artifactLocation": {"uri": "file:///else.py"}}


def test_a_finding_without_a_file_points_to_the_target() -> None:
    def place(target: str) -> str | None:
        (result,) = sarif([finding("no-workers", "x", "y")], "0", target)["runs"][0]["results"]
        found = result.get("locations")
        return found and found[0]["physicalLocation"]["artifactLocation"]["uri"]

    assert [place(one) for one in ("a/data.py:loader", "train.py", "package.data:loader")] == [
        "a/data.py",
        "train.py",
        None,
    ]


def test_two_findings_of_one_check_keep_their_identity_when_numbers_change() -> None:
    before = finding("copy-on-write", "210 MB", "fix", file="train.py", line=3)
    after = finding("copy-on-write", "240 MB", "fix", file="train.py", line=9)
    prints = [sarif([one], "0")["runs"][0]["results"][0]["partialFingerprints"] for one in (before, after)]
    assert prints[0] == prints[1]


def test_annotations_are_one_escaped_line_each() -> None:
    lines = github_annotations(findings()).splitlines()
    assert len(lines) == len(findings())
    assert lines[-3].startswith(
        "::error file=a dir/ü%2Cx%3Ay.py,line=7,title=shm-full%3A /dev/shm is too small"
    )
    assert "::100%25 of%0A/dev/shm: 5,000 MB" in lines[-3]
    assert lines[-2].startswith("::warning title=no-workers%3A ")
    assert github_annotations([finding("slow-start", "x", "y")]).startswith("::notice ")


def test_markdown_cannot_be_injected() -> None:
    bad = finding("no-workers", "<script>|*x*", "DataLoader(\n  a,\n)\n```\n# no", file="a`b.py", line=1)
    text = check_markdown(CheckReport("tr|ain.py", (bad,), (CheckedLoader("x|y", first_batch_s=1.0),)))
    assert "### 🟡 1 warning in tr\\|ain.py" in text
    assert "\\<script\\>\\|\\*x\\*" in text
    assert "````python" in text
    assert "| x\\|y: first batch | 1.00 s |" in text


def test_json_has_what_the_docs_promise() -> None:
    report = CheckReport(
        "train.py", tuple(findings()[:2]), (CheckedLoader("loader", "train.py", 3),), checks=9
    )
    found = check_json(report, "0.1.0")
    assert json.loads(json.dumps(found)) == found
    assert found["summary"] == {"error": 2, "warning": 0, "note": 0}
    assert set(found["findings"][0]) == {
        "id", "severity", "group", "title", "message", "why", "fix", "file", "line", "harm", "doc",
    }  # fmt: skip
    assert set(found["loaders"][0]) == {
        "name", "file", "line", "dataset", "workers", "batches", "pickled_bytes", "pickle_s", "first_batch_s",
        "problem",
    }  # fmt: skip
