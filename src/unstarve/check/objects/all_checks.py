"""Every check of objects, and how they are run."""

from __future__ import annotations

from unstarve.check.objects.subject import ObjectCheck, Subject
from unstarve.model.checks import by_harm
from unstarve.model.finding import Finding

WRONG_DATA: tuple[ObjectCheck, ...] = ()
CRASH_OR_HANG: tuple[ObjectCheck, ...] = ()
SPEED_AND_MEMORY: tuple[ObjectCheck, ...] = ()


def check_loader(subject: Subject) -> list[Finding]:
    """All findings about a loader, the worst first."""
    checks = (*WRONG_DATA, *CRASH_OR_HANG, *SPEED_AND_MEMORY)
    return by_harm([found for check in checks for found in check(subject)])
