"""Reports on their way from the checked processes to the launcher: one JSON file per process."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from unstarve.model.check_report import CheckReport, report_from_plain

_SUFFIX = ".check"
TARGET_ERROR = "target.error"
"""In the same folder: the sentence that says what is wrong with the target's name."""


def write_part(folder: Path, report: CheckReport) -> None:
    """Write or replace this process's report; never raises."""
    part = folder / f"{os.getpid()}{_SUFFIX}"
    new = part.with_suffix(".new")
    with contextlib.suppress(OSError):  # the folder is gone: nobody waits for the report
        new.write_text(json.dumps(report.to_plain()), "utf-8")
        new.replace(part)


def read_parts(folder: Path) -> list[CheckReport]:
    """The reports of all processes, in the order in which they were begun."""
    found = []
    for part in sorted(folder.glob(f"*{_SUFFIX}"), key=lambda one: int(one.stem)):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):  # not written by us
            found.append(report_from_plain(json.loads(part.read_text("utf-8"))))
    return found
