"""What a rule proposes: a change, as an edit of the loader's call and as a scenario for the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from unstarve.model import Cause, Scenario

Outcome = Scenario | Mapping[Cause, float]
"""What would be different, or which share of each cause's waiting would disappear."""


class Code(str):
    """An argument's value that is written as it stands: a name, a call."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Edit:
    """A change to the call that makes a loader. Edits of different parts of the call can be joined."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Loader arguments to set: plain values, or `Code`."""
    dataset: str | None = None
    """The new dataset, with ``{}`` where the old one belongs: ``unstarve.CachedDataset({})``."""
    engine: bool = False
    """Make it an `unstarve.DataLoader`."""
    shell: tuple[str, ...] = ()
    """Commands to run once, before training: ``unstarve pack train train.packed``."""
    before: tuple[str, ...] = ()
    """Lines that come before the call, such as a function that an argument names."""
    after: tuple[str, ...] = ()
    """Lines for the training loop."""

    @property
    def changes_call(self) -> bool:
        return bool(self.arguments or self.dataset or self.engine)

    def joined(self, other: Edit) -> Edit | None:
        """Both edits as one; None when they set the same thing to different values."""
        shared = self.arguments.keys() & other.arguments.keys()
        if any(self.arguments[name] != other.arguments[name] for name in shared):
            return None
        if self.dataset is not None and other.dataset is not None and self.dataset != other.dataset:
            return None
        return Edit(
            {**self.arguments, **other.arguments},
            self.dataset or other.dataset,
            self.engine or other.engine,
            self.shell + tuple(line for line in other.shell if line not in self.shell),
            self.before + tuple(line for line in other.before if line not in self.before),
            self.after + tuple(line for line in other.after if line not in self.after),
        )


@dataclass(frozen=True, slots=True)
class Proposal:
    """One change that a rule proposes; `all_rules.advise` predicts its gain and decides."""

    id: str
    what: str
    """The change in a few words, for a list: ``8 workers``, ``unstarve.CachedDataset``."""
    title: str
    """What to do, in one line."""
    why: str
    """The measured reason, in one sentence."""
    edit: Edit
    likely: Outcome | None
    """None when its gain cannot be predicted."""
    worst: Outcome | None = None
    best: Outcome | None = None
    """`worst` and `best` widen the interval where the effect of the change itself is uncertain."""
    note: str = ""
    """What will be different about the batches, in one sentence; empty when they stay the same."""
    least: float | None = None
    """The smallest gain for which it is advised, if that is not the usual one."""
    command: str = ""
    """A command that makes the change without editing the source."""
