"""Findings: what will go wrong with a loader, or has just gone wrong, and the change that prevents it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much harm a finding does if nothing is changed, the worst first."""

    ERROR = "error"
    """Wrong data, a crash or a hang."""
    WARNING = "warning"
    """It costs time or memory now, or breaks when something else changes."""
    NOTE = "note"
    """Good to know."""

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


class Group(StrEnum):
    """What a check protects."""

    WRONG_DATA = "wrong data"
    CRASH_OR_HANG = "crash or hang"
    SPEED_AND_MEMORY = "speed and memory"


@dataclass(frozen=True, slots=True)
class Check:
    """One trouble that unstarve recognises. All of them are in `model.checks`."""

    id: str
    group: Group
    severity: Severity
    title: str
    """The trouble in a few words: "Workers share one random generator"."""
    why: str
    """What happens if nothing is changed, in one or two sentences."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check that found its trouble in a loader, a run or a line of source."""

    id: str
    severity: Severity
    message: str
    """What was seen, in numbers and with the user's names."""
    why: str
    fix: str
    """The exact change, with the user's names: a sentence, or code that can be pasted."""
    file: str | None = None
    """The user's file the finding points to, as the user would write it; None where there is none."""
    line: int | None = None
    harm: float = 0.0
    """Expected harm beyond the severity, to sort by: a share of time lost, or of samples that are wrong."""

    @property
    def where(self) -> str | None:
        """``train.py:41``."""
        return self.file if self.file is None or self.line is None else f"{self.file}:{self.line}"

    @property
    def doc(self) -> str:
        """Where the documentation explains it."""
        return f"docs/checks.md#{self.id}"
