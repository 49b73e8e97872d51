"""The names of the engines that run a loader: declared here and nowhere else."""

from __future__ import annotations

import difflib
from enum import StrEnum


class Engine(StrEnum):
    """Values of ``engine=`` and ``--engine``; ``auto`` picks the first other that can run the loader."""

    AUTO = "auto"
    VIEWS = "views"
    GATHER = "gather"
    THREADS = "threads"
    RING = "ring"
    STOCK = "stock"


ENGINES = tuple(engine.value for engine in Engine if engine is not Engine.AUTO)
"""Fastest first."""
WORKER_ENGINES = (Engine.RING.value, Engine.STOCK.value)
"""Engines that run worker processes: the ones with settings to tune."""


def check_engine(name: str) -> None:
    """Raise ValueError for a name that is neither an engine nor "auto"."""
    names = (Engine.AUTO.value, *ENGINES)
    if name in names:
        return
    near = difflib.get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"engine must be one of {', '.join(names)}, got {name!r}{hint}")


ORIGINAL = "_unstarve_original"
"""Attribute of a function that replaces torch's ``DataLoader.__iter__``: the function it replaces."""
