"""Findings as commands of GitHub Actions, which shows them beside the lines of a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from unstarve.model.checks import CHECKS
from unstarve.model.finding import Finding, Severity

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def github_annotations(findings: Sequence[Finding]) -> str:
    """One line per finding.

    ``::warning file=train.py,line=41,title=no-workers%3A …::With num_workers=0, …``
    """
    return "".join(f"{_annotation(found)}\n" for found in findings)


def _annotation(found: Finding) -> str:
    properties = {"title": f"{found.id}: {CHECKS[found.id].title}"}
    if found.file is not None:
        where = {"file": found.file} | ({} if found.line is None else {"line": str(found.line)})
        properties = where | properties
    given = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    message = f"{found.message} {found.why}\n{found.fix}"
    return f"::{_COMMANDS[found.severity]} {given}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
