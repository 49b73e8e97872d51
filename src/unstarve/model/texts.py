"""The same noun with other texts in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

_DEEPEST = 40
"""A configuration may hold anything that JSON can; nobody reads further than this."""

T = TypeVar("T")


def each_text(value: T, change: Callable[[str, str], str]) -> T:
    """A copy of a noun in which `change` has been at every text, keys of mappings included.

    `change` gets the text and the name of the field that it lies in. Words of closed lists (enums) stay as
    they are, and so do objects that are no nouns of ours.
    """
    copy: T = _changed(value, change, "", 0)
    return copy


def _changed(value: Any, change: Callable[[str, str], str], field: str, depth: int) -> Any:
    if type(value) is str:
        return change(value, field)
    if depth > _DEEPEST:
        return None
    if isinstance(value, Mapping):
        return {
            _changed(key, change, field, depth + 1): _changed(held, change, field, depth + 1)
            for key, held in value.items()
        }
    if isinstance(value, (tuple, list)):
        items = (_changed(one, change, field, depth + 1) for one in value)
        return value._make(items) if hasattr(value, "_make") else type(value)(items)
    if dataclasses.is_dataclass(type(value)) and type(value).__module__.startswith(__package__ or ""):
        names = [one.name for one in dataclasses.fields(value)]
        return type(value)(
            **{name: _changed(getattr(value, name), change, name, depth + 1) for name in names}
        )
    return value
