"""The ``[tool.unstarve.check]`` section of the user's pyproject.toml:

[tool.unstarve.check]
ignore = ["no-workers", "not-pinned"]
fail-on = "error"
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unstarve.checks.ignoring import check_ids
from unstarve.errors import UsageError
from unstarve.model.finding import Severity

FAIL_ON = (*Severity, "never")
_KNOWN = ("ignore", "fail-on")


@dataclass(frozen=True, slots=True)
class CheckConfig:
    """What the user's project asks of every check."""

    ignore: frozenset[str] = frozenset()
    fail_on: str | None = None
    """A severity or "never"; None where the file does not say."""


def read_config(start: Path) -> CheckConfig:
    """The section of the nearest pyproject.toml in `start` or a folder above; empty if there is none.

    Raises `UsageError` for a file or a section that cannot be read.
    """
    folder = start.absolute()
    for place in (folder, *folder.parents):
        file = place / "pyproject.toml"
        if file.is_file():
            return _parsed(file)
    return CheckConfig()


def _parsed(file: Path) -> CheckConfig:
    try:
        section: Any = tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {file}: {error}") from error
    for name in ("tool", "unstarve", "check"):
        section = section.get(name, {})
        if not isinstance(section, dict):
            raise UsageError(f"{file}: [tool.unstarve.check] must be a table")
    where = f"{file}, [tool.unstarve.check]: "
    for name in section:
        if name not in _KNOWN:
            raise UsageError(f"{where}there is no setting {name!r}; there are {' and '.join(_KNOWN)}")
    ignore, fail_on = section.get("ignore", []), section.get("fail-on")
    if not isinstance(ignore, list) or not all(isinstance(one, str) for one in ignore):
        raise UsageError(f"{where}ignore must be a list of ids")
    if fail_on is not None and fail_on not in FAIL_ON:
        raise UsageError(f"{where}fail-on must be one of {', '.join(FAIL_ON)}, got {fail_on!r}")
    return CheckConfig(check_ids(ignore, where), fail_on)
