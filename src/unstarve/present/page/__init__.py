"""What a browser or a notebook shows. `built/` holds the script and style that `make web` makes of web/."""

from __future__ import annotations

from typing import Any

from unstarve.model.nouns import show_with


def show_results_in_notebooks() -> None:
    """Let results draw themselves as the output of a notebook's cell."""
    show_with(_notebook)


def _notebook() -> Any:
    from unstarve.present.page import notebook  # imports rich, which only a shown result needs

    return notebook
