"""Names of the engines that can run a loader."""

from __future__ import annotations

from enum import StrEnum


class Engine(StrEnum):
    """Values of ``engine=`` and ``--engine``; ``auto`` is the first of the others that can run a loader."""

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
