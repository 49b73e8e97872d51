"""What the checks of objects look at."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader

from unstarve.model.finding import Finding


@dataclass(frozen=True, slots=True)
class Subject:
    """A loader, the names its user gave it, and its first batches where they could be fetched."""

    loader: DataLoader[Any]
    name: str = "loader"
    """The variable that holds it in the user's source."""
    dataset_name: str = "dataset"
    file: str | None = None
    """Where it was created."""
    line: int | None = None
    batches: tuple[Any, ...] = ()
    is_training: bool | None = None
    """Whether gradients were computed from its batches; None when that is not known."""


ObjectCheck = Callable[[Subject], Iterable[Finding]]
