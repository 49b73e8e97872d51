"""The result of `unstarve check` as JSON, documented in docs/check.md."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from unstarve.model.check_report import CheckReport
from unstarve.model.checks import CHECKS
from unstarve.model.finding import Finding, Severity

SCHEMA = "unstarve.check/1"


def check_json(report: CheckReport, version: str) -> dict[str, Any]:
    """The whole report; `version` is unstarve's."""
    return {
        "schema": SCHEMA,
        "unstarve": version,
        "target": report.target,
        "summary": {severity.value: report.count(severity) for severity in Severity},
        "findings": [finding_json(found) for found in report.findings],
        "checks": report.checks,
        "files": report.files,
        "loaders": [asdict(loader) for loader in report.loaders],
        "start": {"import_s": report.import_s, "build_s": report.build_s},
        "stopped_at": report.stopped_at,
        "problems": list(report.problems),
    }


def finding_json(found: Finding) -> dict[str, Any]:
    """One finding with the title and group of its check."""
    check = CHECKS[found.id]
    return {**asdict(found), "title": check.title, "group": check.group.value, "doc": found.doc}
