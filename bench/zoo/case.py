"""What one case of the zoo is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


def runs_anywhere() -> str | None:
    """Nothing is needed."""
    return None


@dataclass(frozen=True)
class Case:
    """One training with one planted truth."""

    name: str
    train: Callable[..., None]
    """Called with a `Truth`, through which it iterates its loader, and with `arguments`."""
    state: str
    cause: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    quick: bool = False
    """Cheap, and far enough from every threshold to be right on any quiet machine: the tests run it."""
    why_not: Callable[[], str | None] = runs_anywhere
    """Why this machine cannot run it, or None."""
