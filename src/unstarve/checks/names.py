"""The names that the user gave a loader and its dataset, from the line that created the loader."""

from __future__ import annotations

import ast
from typing import Any, NamedTuple

from unstarve.collect.call_site import short
from unstarve.collect.loader_origin import Origin
from unstarve.marks import SITE


class Names(NamedTuple):
    """How to speak of a loader."""

    loader: str
    dataset: str
    """An expression of the user's code: ``train_set``, ``self.data`` or ``train_loader.dataset``."""
    file: str | None
    line: int | None


def names_of(loader: Any, fallback: str = "loader", dataset: str | None = None) -> Names:
    """The names of a loader: `fallback` if its line does not tell, and `dataset` if that is known."""
    site = vars(loader).get(SITE)
    origin = None if site is None else Origin(*site)
    if origin is None or origin.line < 1:
        return Names(fallback, dataset or _of(fallback), None, None)
    called = origin.name or fallback
    written = dataset or _first_argument(origin.source(type(loader).__name__))
    file = None if origin.file.startswith("<") else short(origin.file)  # <stdin>, <ipython-input-3>
    return Names(called, written or _of(called), file, None if file is None else origin.line)


def _of(loader: str) -> str:
    return f"{loader}.dataset" if loader.isidentifier() and loader != "loader" else "dataset"


def _first_argument(call: str | None) -> str | None:
    """The dataset of a ``DataLoader(…)`` call, if it is a plain name.

    >>> _first_argument("DataLoader(self.train_set, batch_size=8)")
    'self.train_set'
    """
    try:
        parsed = ast.parse(call or "", mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return None
    if not isinstance(parsed, ast.Call):
        return None
    given = [keyword.value for keyword in parsed.keywords if keyword.arg == "dataset"] + parsed.args[:1]
    plain = bool(given) and all(
        isinstance(n, ast.Name | ast.Attribute | ast.Load) for n in ast.walk(given[0])
    )
    return ast.unparse(given[0]) if plain else None
