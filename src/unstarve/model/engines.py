"""The ways to run a loader, by name."""

from __future__ import annotations

from enum import StrEnum


class Engine(StrEnum):
    """What ``engine=`` and ``--engine`` take; ``auto`` is the first of the others that can run a loader."""

    AUTO = "auto"
    VIEWS = "views"
    GATHER = "gather"
    THREADS = "threads"
    RING = "ring"
    STOCK = "stock"


ENGINES = tuple(engine.value for engine in Engine if engine is not Engine.AUTO)
"""Fastest first."""

ORIGINAL = "_unstarve_original"
"""Attribute of a function that replaces torch's ``DataLoader.__iter__``: the function it replaces."""
