"""Findings as SARIF 2.1.0, the format in which code hosts and editors read the results of linters."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

from unstarve.model.checks import CHECKS
from unstarve.model.finding import Check, Finding

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def sarif(findings: Sequence[Finding], version: str, target: str | None = None) -> dict[str, Any]:
    """A SARIF log with one run of unstarve `version`.

    A finding without a file points to `target`, if that is one.
    """
    ids = list(dict.fromkeys(found.id for found in findings))
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "unstarve",
                        "semanticVersion": version,
                        "rules": [_rule(CHECKS[id]) for id in ids],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_result(found, ids.index(found.id), target) for found in findings],
            }
        ],
    }


def _rule(check: Check) -> dict[str, Any]:
    return {
        "id": check.id,
        "name": "".join(word.capitalize() for word in check.id.split("-")),
        "shortDescription": {"text": check.title},
        "fullDescription": {"text": check.why},
        "help": {"text": f"{check.why} See docs/checks.md#{check.id}."},
        "defaultConfiguration": {"level": check.severity.value},
        "properties": {"tags": [check.group.value]},
    }


def _result(found: Finding, rule: int, target: str | None) -> dict[str, Any]:
    file = found.file or _file_of(target or "")
    result: dict[str, Any] = {
        "ruleId": found.id,
        "ruleIndex": rule,
        "level": found.severity.value,
        "message": {"text": f"{found.message} {found.why}\n{found.fix}"},
        # Numbers in the message change from run to run: a code host should still know the finding again.
        "partialFingerprints": {"unstarve/v1": _digest(f"{found.id} {file}")},
    }
    if file is not None:
        place: dict[str, Any] = {"artifactLocation": _location(file)}
        if found.file is not None and found.line is not None:
            place["region"] = {"startLine": found.line}
        result["locations"] = [{"physicalLocation": place}]
    return result


def _file_of(target: str) -> str | None:
    """The file of ``train.py`` or ``data.py:loader``; None for a module."""
    named = re.fullmatch(r"(.+\.py)(?::.*)?", target)
    return None if named is None else named[1]


def _location(file: str) -> dict[str, Any]:
    """A file below the current folder is named relative to it, which a code host takes for its checkout."""
    path = PurePath(file)
    if path.is_absolute():
        try:
            path = path.relative_to(Path.cwd())
        except ValueError:
            return {"uri": Path(file).as_uri()}
    return {"uri": quote(path.as_posix()), "uriBaseId": "%SRCROOT%"}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
