"""What nouns have in common: they show themselves in notebooks, and can be copied with other texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

_DEEPEST = 40
"""Nesting that is followed: a configuration may hold anything that JSON can."""

T = TypeVar("T")


class Shown:
    """A mixin with the methods that Jupyter and IPython look for.

    `show_with` names the presenter, so that the nouns do not depend on it.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(_presenter().html_of(self))

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, str]:
        # Otherwise IPython prints the repr of the dataclass: a wall of text.
        return {"text/html": self._repr_html_(), "text/plain": self._as_text()}

    def _as_text(self) -> str:
        return str(_presenter().text_of(self))


_find_presenter: list[Callable[[], Any]] = []


def show_with(find_presenter: Callable[[], Any]) -> None:
    """Set what draws nouns: `find_presenter` is called when one is shown first, and returns a module with
    ``html_of`` and ``text_of``.
    """
    _find_presenter[:] = [find_presenter]


def _presenter() -> Any:
    return _find_presenter[0]()


def each_text(value: T, change: Callable[[str, str], str]) -> T:
    """A copy of a noun in which `change` was applied to every text, including keys of mappings.

    `change` gets the text and the name of the field that holds it. Enum values and objects that are not nouns
    of ours stay as they are.
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
