"""What is wanted of one call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from unstarve.model.saved import Place, Setting


@dataclass(frozen=True, slots=True)
class Wish:
    """Settings for the loader of class `kind` that is made at `place`."""

    place: Place
    kind: str
    settings: Mapping[str, Setting]
