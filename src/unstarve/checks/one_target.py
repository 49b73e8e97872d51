"""`unstarve.check`: the checks of a loader or dataset that exists in this process."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from types import FrameType
from typing import Any

from unstarve.checks.ignoring import check_ids
from unstarve.checks.slow_samples import time_samples
from unstarve.checks.targets import checks_of
from unstarve.collect.random_state import random_state_kept
from unstarve.errors import UsageError
from unstarve.model.checks import by_harm
from unstarve.model.finding import Finding


def check(target: Any, *, batches: int = 2, samples: int = 0, ignore: Sequence[str] = ()) -> list[Finding]:
    """Find what will go wrong with a loader or a dataset; the worst finding comes first.

    `target` may also be a list, tuple or dict of loaders and datasets. The first `batches` batches are
    fetched as an epoch would; 0 looks at the objects alone. `samples` times this many samples one by one.
    `ignore` leaves out checks by their id. Random streams are restored, and workers started for this are gone
    on return. A loader whose batches cannot be fetched is reported as a warning.

    >>> [found.id for found in check(loader)]  # doctest: +SKIP
    ['generator-before-fork', 'workers-each-epoch']
    """
    if batches < 0 or samples < 0:
        raise UsageError(f"batches and samples must be >= 0, got {batches} and {samples}")
    ignored = check_ids(ignore)
    problems: list[str] = []
    findings = []
    for one in checks_of(target, _name_of(target) or "loader", problems.append):
        with random_state_kept(one.loader):
            if batches:
                one.fetch(batches)
            one.conclude()
            if samples:
                one.samples = time_samples(one.loader.dataset, samples)
        findings += [found for found in one.findings() if found.id not in ignored]
        problems += [one.problem] if one.problem else []
    for problem in problems:
        warnings.warn(problem, stacklevel=2)
    return by_harm(findings)


def _name_of(value: Any) -> str | None:
    """The variable in which the user's code keeps an object."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "unstarve":
        frame = frame.f_back
    if frame is None:
        return None
    for names in (frame.f_locals, frame.f_globals):
        for name, held in list(names.items()):
            if held is value and not name.startswith("_"):
                return name
    return None
