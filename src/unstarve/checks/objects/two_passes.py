"""Run the checks of objects twice: before the workers start, and once the first batches are there.

Some checks look at what a fork would copy, so they must run before there are workers; others look at batches,
which come later. Nothing says which is which: a check that asks for the batches in the first pass runs again
in the second one, and its second answer counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from unstarve.checks.objects import all_checks
from unstarve.checks.objects.subject import ObjectCheck, Subject
from unstarve.model.finding import Finding

Complain = Callable[[str], None]
"""Takes a sentence about a check that failed itself."""


@dataclass(frozen=True, slots=True)
class FirstPass:
    """What is known before the workers start."""

    findings: tuple[Finding, ...]
    """Of checks that do not look at batches."""
    early: tuple[Finding, ...]
    """Of checks that do, without having seen any."""
    waiting: tuple[ObjectCheck, ...]
    """The checks that look at batches."""


class _WithoutBatches(Subject):
    """A subject that notes whether a check asks for its batches."""

    __slots__ = ("asked",)
    asked: bool

    def __getattribute__(self, name: str) -> Any:
        if name == "batches":
            object.__setattr__(self, "asked", True)
        return super().__getattribute__(name)


def first_pass(subject: Subject, complain: Complain) -> FirstPass:
    """Run all checks on a loader whose workers have not been started."""
    known: list[Finding] = []
    early: list[Finding] = []
    waiting: list[ObjectCheck] = []
    given = {field.name: getattr(subject, field.name) for field in fields(subject)}
    for check in every_check():
        watched = _WithoutBatches(**{**given, "batches": ()})
        object.__setattr__(watched, "asked", False)
        found = _findings(check, watched, complain)
        if watched.asked:
            waiting.append(check)
            early += found
        else:
            known += found
    return FirstPass(tuple(known), tuple(early), tuple(waiting))


def second_pass(subject: Subject, first: FirstPass, complain: Complain) -> list[Finding]:
    """All findings about a loader whose first batches are there; without any, what was known before."""
    if not subject.batches:
        return [*first.findings, *first.early]
    late = [found for check in first.waiting for found in _findings(check, subject, complain)]
    return [*first.findings, *late]


def every_check() -> tuple[ObjectCheck, ...]:
    """All checks of objects, in the order of their groups."""
    return (*all_checks.WRONG_DATA, *all_checks.CRASH_OR_HANG, *all_checks.SPEED_AND_MEMORY)


def _findings(check: ObjectCheck, subject: Subject, complain: Complain) -> list[Finding]:
    try:
        return list(check(subject))
    except Exception as error:  # the objects are the user's: they may raise anything
        name = getattr(check, "__name__", repr(check))
        complain(f"the check {name} failed on {subject.name}: {error!r}")
        return []
