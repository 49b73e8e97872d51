"""A loader as it was recorded: who made it, where, and with which arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Maker:
    """The framework that created a loader, or that asked a method of the user for it."""

    framework: str
    """Its package: ``transformers``, ``timm``, ``lightning``, …"""
    function: str | None = None
    """What returned the loader: ``Trainer.get_train_dataloader``, or the user's own method."""
    option: str | None = None
    """Option of the command line that gives the number of workers: ``--workers``."""

    @property
    def makes_anew(self) -> bool:
        """Whether it creates the loader again for each use, while those from before may still exist."""
        return self.framework == "transformers"


@dataclass(frozen=True, slots=True)
class Loader:
    """A loader as the user made it."""

    id: int
    name: str
    """The variable it was assigned to, or what a framework made it for, else ``loader N``."""
    where: str
    """``file:line`` of the user's own code that created it, or that iterated it first."""
    kind: str
    """Class name."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The arguments that matter for speed: ``num_workers``, ``batch_size``, …"""
    source: str | None = None
    """The call that made it, as the user wrote it; None where it could not be found."""
    tensors: int | None = None
    """Number of tensors in a batch; None with workers, or if there are too many to count."""
    statement: str = ""
    """What stands before the call on its line, such as ``train_loader = ``; empty when that is not simple."""
    dataset: Mapping[str, Any] = field(default_factory=dict)
    """Facts about the dataset that advice needs, as `collect.dataset_facts` finds them."""
    maker: Maker | None = None
    """None if the user's own line created it."""
    created: int | None = None
    """Its place in the order in which the process created loaders; None in old runs."""
