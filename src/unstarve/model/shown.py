"""Results that show themselves: in a notebook as HTML, at its prompt as text."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from typing import Any


class Shown:
    """Gives a result the methods that Jupyter and IPython look for.

    The nouns know nothing of how they are shown: the presenter is looked up by name when one is.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(_presenter().html_of(self))

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, str]:
        # IPython would take a dataclass's own repr for the text: a wall of it.
        return {"text/html": self._repr_html_(), "text/plain": self._as_text()}

    def _as_text(self) -> str:
        return str(_presenter().text_of(self))


def _presenter() -> Any:
    return import_module("unstarve.present.page.notebook")
