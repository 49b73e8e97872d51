"""What a search found."""

from __future__ import annotations

from dataclasses import dataclass

from unstarve.model import Change, LoaderSettings


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The settings to use, and why."""

    chosen: LoaderSettings
    gain: Change | None
    reason: str
    steps: int = 0
    """Measured under both settings that `gain` compares."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """The best setting of all forecasts so far, and its gain over the user's own."""

    settings: LoaderSettings
    gain: Change
