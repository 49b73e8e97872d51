"""Findings that the user does not want to see: by id, or by a comment in the line they point to.

train_loader = DataLoader(data, num_workers=64)  # unstarve: ignore[more-workers-than-cores]
val_loader = DataLoader(data, num_workers=64)    # unstarve: ignore
"""

from __future__ import annotations

import difflib
import linecache
import re
from collections.abc import Iterable

from unstarve.errors import UsageError
from unstarve.model.checks import CHECKS
from unstarve.model.finding import Finding

_COMMENT = re.compile(r"#\s*unstarve:\s*ignore(?:\[([^\]]*)\])?", re.IGNORECASE)


def check_ids(ids: Iterable[str], where: str = "") -> frozenset[str]:
    """The ids, if each of them is a check's; raises `UsageError` naming the nearest one otherwise."""
    wanted = frozenset(ids)
    for unknown in sorted(wanted - CHECKS.keys()):
        near = difflib.get_close_matches(unknown, CHECKS, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]}?" if near else "; docs/checks.md lists all"
        raise UsageError(f"{where}there is no check {unknown!r}{hint}")
    return wanted


def kept(findings: Iterable[Finding], ignored: Iterable[str] = ()) -> list[Finding]:
    """The findings that are neither ignored by their id nor by a comment in their line."""
    by_id = frozenset(ignored)
    return [one for one in findings if one.id not in by_id and not _is_ignored_in_line(one)]


def _is_ignored_in_line(found: Finding) -> bool:
    if found.file is None or found.line is None:
        return False
    return ignores(linecache.getline(found.file, found.line), found.id)


def ignores(line: str, id: str) -> bool:
    """Whether a line of source says that a check is to be ignored there.

    >>> ignores("loader = DataLoader(data)  # unstarve: ignore[no-workers, not-pinned]", "not-pinned")
    True
    """
    return any(
        match[1] is None or id in (one.strip() for one in match[1].split(","))
        for match in _COMMENT.finditer(line)
    )
