"""What may deliver batches in a loader's place while it is recorded: `unstarve ideal` replays cached ones.

collect only knows this protocol. `launch` says, before anything is recorded, what implements it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

S = TypeVar("S")
T = TypeVar("T")


class Substitute(Protocol):
    """Asked around every top-level batch of a training process; loaders go by their number."""

    @property
    def done(self) -> bool:
        """Everything that was to be measured has been: the recording ends."""

    def begin_epoch(self, number: int, loader: Any) -> None:
        """A loader starts over."""

    def before(self, number: int) -> None:
        """Training is about to ask for its next batch."""

    def deliver(self, number: int, advance: Callable[[S], T], source: S) -> T:
        """The batch that training gets: ``advance(source)`` is the loader's own."""

    def label(self, number: int, batch: Any) -> tuple[int, int]:
        """Flags and block of the batch just delivered, for its row in the run file."""


_make: Callable[[], Substitute] | None = None


def set_substitute(make: Callable[[], Substitute] | None) -> None:
    """Let every recorder of a training process call `make` for its substitute; None for no substitute."""
    global _make
    _make = make


def new_substitute() -> Substitute | None:
    """A substitute for a recorder that begins; None where loaders deliver their own batches."""
    return None if _make is None else _make()
