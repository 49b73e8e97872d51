"""A zoo of planted bottlenecks: small trainings with a known cause, one module per family of causes.

`pin` and `copy` are missing: without an accelerator nothing is pinned or copied.
"""

from __future__ import annotations

from zoo import (
    collate,
    compute,
    contention,
    cpu,
    disk,
    handoff,
    host,
    mixed,
    order,
    remote,
    sampler,
    short,
    startup,
)
from zoo.case import Case

FAMILIES = (
    compute,
    host,
    disk,
    remote,
    cpu,
    collate,
    handoff,
    sampler,
    startup,
    order,
    contention,
    mixed,
    short,
)
CASES: tuple[Case, ...] = tuple(case for family in FAMILIES for case in family.CASES)
