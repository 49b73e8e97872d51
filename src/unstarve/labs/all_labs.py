"""The list of labs, in the order in which to take them."""

from __future__ import annotations

import difflib
from importlib import import_module

from unstarve.errors import UsageError
from unstarve.labs.lab import Lab

NAMES = (
    "io-dataloader",
    "many-ranks",
    "when-it-breaks",
)


def lab_named(name: str) -> Lab:
    """The lab of this name. Raises `UsageError` for a name that no lab has."""
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, 1)
        hint = f"did you mean {near[0]}?" if near else "see `unstarve lab list`"
        raise UsageError(f"there is no lab {name}; {hint}")
    lab: Lab = import_module(f"unstarve.labs.specs.{name.replace('-', '_')}").LAB
    return lab


def all_labs() -> list[Lab]:
    """Every lab."""
    return [lab_named(name) for name in NAMES]
